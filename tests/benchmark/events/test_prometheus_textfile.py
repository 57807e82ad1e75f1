"""Gauges for Prometheus, read back by its own parser."""

import os
import stat
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmark.events.background_sink import Background
from benchmark.events.prometheus_textfile import GAUGES, PrometheusTextfile
from tests.benchmark.events.recorder import event

STEP = {
    "iteration": 4001,
    "consumed_samples": 6_145_536,
    "trained_tokens": 3_145_728,
    "loss": 2.75,
    "grad_norm": 0.25,
    "learning_rate": 2e-5,
    "step_s": 9.5,
    "tokens_per_s": 331_129.0,
    "tflops_per_device": 400.0,
    "mfu": None,
    "memory_gib": 60.0,
    "skipped": False,
}


def parsed(path: Path) -> dict[str, float]:
    """Gauges by name."""
    samples = [sample for family in text_string_to_metric_families(path.read_text()) for sample in family.samples]
    assert all(set(sample.labels) == {"run", "system"} for sample in samples)
    return {sample.name: sample.value for sample in samples}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def sink_at(path: Path, clock: Clock | None = None, **known: float | None) -> PrometheusTextfile:
    return PrometheusTextfile(path, run="run_0", system="dgxh100_n64", known=known, clock=clock or Clock())


def test_gauges_of_what_happened(tmp_path: Path) -> None:
    path = tmp_path / "gpt3.prom"
    sink = sink_at(path)
    sink.write(event("step", **STEP))
    sink.write(event("evaluation", trained_tokens=3_145_728, log_perplexity=2.7, target=2.69, seconds=30.0))
    sink.write(event("checkpoint", steps=16, seconds=3.5))
    sink.write(event("checkpoint_written", steps=16, seconds=50.0, bytes=1))
    sink.write(event("restart", 2, step=0))
    sink.write(event("eta", seconds=3600.0, seconds_low=3000.0, seconds_high=4000.0, target_tokens=1_207_959_552))
    found = parsed(path)
    assert found["gpt3_run_active"] == 1
    assert found["gpt3_loss_nats"] == 2.75
    assert found["gpt3_step_seconds"] == 9.5
    assert found["gpt3_device_memory_peak_bytes"] == 60 * 2**30
    assert found["gpt3_last_step_timestamp_seconds"] == 1_700_000_000.0
    assert found["gpt3_step_skipped"] == 0
    assert found["gpt3_evaluation_log_perplexity_nats"] == 2.7
    assert (found["gpt3_checkpoint_pause_seconds"], found["gpt3_checkpoint_write_seconds"]) == (3.5, 50.0)
    assert (found["gpt3_checkpoint_steps"], found["gpt3_restarts"], found["gpt3_target_seconds"]) == (16, 2, 3600)
    assert found.keys() == {"gpt3_run_active"} | {one.name for one in GAUGES} - {
        "gpt3_mfu_ratio"
    }  # its peak is unknown
    sink.close()
    assert parsed(path)["gpt3_run_active"] == 0


def test_a_restart_begins_with_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "gpt3.prom"
    sink = sink_at(path, gpt3_restarts=3.0, gpt3_evaluation_log_perplexity_nats=2.71, gpt3_checkpoint_steps=None)
    sink.write(event("step", **{**STEP, "loss": float("nan"), "grad_norm": float("inf")}))
    found = parsed(path)
    assert (found["gpt3_restarts"], found["gpt3_evaluation_log_perplexity_nats"]) == (3, 2.71)
    assert "gpt3_checkpoint_steps" not in found
    assert found["gpt3_loss_nats"] != found["gpt3_loss_nats"]
    assert found["gpt3_gradient_norm"] == float("inf")


def test_steps_are_written_every_few_seconds_and_events_at_once(tmp_path: Path) -> None:
    path, clock = tmp_path / "gpt3.prom", Clock()
    sink = sink_at(path, clock)
    losses = []
    for number in range(12):
        sink.write(event("step", **{**STEP, "loss": float(number)}))
        losses.append(parsed(path)["gpt3_loss_nats"])
        clock.now_s += 1.0
    assert losses == [0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10]
    sink.write(event("checkpoint", steps=1, seconds=1.0))
    assert parsed(path)["gpt3_loss_nats"] == 11
    before = path.stat().st_ino
    sink.write(event("message", "does not matter"))
    assert path.stat().st_ino == before


def test_labels_are_escaped_and_the_file_is_for_all_to_read(tmp_path: Path) -> None:
    path = tmp_path / "gpt3.prom"
    old = os.umask(0o077)
    try:
        sink = PrometheusTextfile(path, run='a "b" \\ c\nd', system="s", known={})
        sink.write(event("step", **STEP))
    finally:
        os.umask(old)
    assert parsed(path)["gpt3_loss_nats"] == 2.75
    assert r'run="a \"b\" \\ c\nd"' in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["gpt3.prom"]


def test_a_missing_folder_is_told_and_training_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    background = Background(sink_at(tmp_path / "none" / "gpt3.prom"), retry_s=0.01)
    background.write(event("step", **STEP))
    told = ""
    while "warning" not in told:
        told += capfd.readouterr().err
        time.sleep(0.01)
    (tmp_path / "none").mkdir()
    background.close()
    assert parsed(tmp_path / "none" / "gpt3.prom")["gpt3_run_active"] == 0
    told += capfd.readouterr().err
    assert "warning: Prometheus textfile: No such file or directory; training goes on" in told
