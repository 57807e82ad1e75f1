"""What TensorBoard, Weights & Biases and Prometheus are given."""

import json
import os
import stat
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmark.run_record.events.event import Event
from benchmark.run_record.events.telemetry import FIGURES, PrometheusTextfile, TensorBoard, WeightsAndBiases
from foundation.errors import InputError
from tests.benchmark.run_record.events.recorder import event

STEP = event(
    "step",
    iteration=4001,
    consumed_samples=6_145_536,
    trained_tokens=3_145_728,
    loss=2.75,
    grad_norm=float("inf"),
    learning_rate=2e-5,
    step_s=9.5,
    tokens_per_s=331_129.0,
    tflops_per_device=400.0,
    mfu=None,
    memory_gib=60.0,
    skipped=False,
)
EVALUATION = event("evaluation", trained_tokens=3_145_728, log_perplexity=2.7, target=2.69, seconds=30.0)
RUN = [
    STEP,
    EVALUATION,
    event("checkpoint", steps=16, seconds=3.5),
    event("checkpoint_written", steps=16, seconds=50.0, bytes=1),
    event("restart", 2, step=0),
    event("eta", seconds=3600.0, seconds_low=3000.0, seconds_high=4000.0, target_tokens=1_207_959_552),
    event("message", "the disk is full"),
]


def gauges(path: Path) -> dict[str, float]:
    samples = [sample for family in text_string_to_metric_families(path.read_text()) for sample in family.samples]
    assert all(set(sample.labels) == {"run", "system"} for sample in samples)
    return {sample.name.removeprefix("gpt3_"): sample.value for sample in samples}


def test_gauges_of_what_happened(tmp_path: Path) -> None:
    path, old = tmp_path / "gpt3.prom", os.umask(0o077)
    try:
        sink = PrometheusTextfile(path, run='a "b" \\ c\nd', system="dgxh100_n64")
        for one in RUN:
            sink.write(one)
    finally:
        os.umask(old)
    found = gauges(path)
    due = {"loss_nats": 2.75, "step_seconds": 9.5, "device_memory_peak_bytes": 60 * 2**30, "step_skipped": 0}
    due |= {"device_flops_per_second": 4e14, "gradient_norm": float("inf"), "last_step_timestamp_seconds": 1.7e9}
    due |= {"evaluation_log_perplexity_nats": 2.7, "checkpoint_pause_seconds": 3.5, "checkpoint_write_seconds": 50.0}
    due |= {"checkpoint_steps": 16, "restarts": 2, "target_seconds": 3600, "run_active": 1}
    assert {name: found[name] for name in due} == due
    assert found.keys() == {"run_active"} | {one.gauge for one in FIGURES} - {"mfu_ratio"}  # its peak is unknown
    assert r'run="a \"b\" \\ c\nd"' in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # for the exporter, another user
    sink.close()
    assert gauges(path)["run_active"] == 0
    assert [one.name for one in tmp_path.iterdir()] == ["gpt3.prom"]


def test_steps_are_written_every_few_seconds_and_events_at_once(tmp_path: Path) -> None:
    path, now_s = tmp_path / "gpt3.prom", iter(range(100))
    sink = PrometheusTextfile(path, run="run_0", system="cpu_p1", clock=lambda: 0.5 * next(now_s))
    written = []
    for number in range(20):  # each looks at the clock once, and once more when it writes
        sink.write(event("step", loss=float(number)))
        written.append(gauges(path)["loss_nats"])
    assert sorted(set(written)) == [0, 10]
    sink.write(event("checkpoint", steps=1, seconds=1.0))
    assert gauges(path)["loss_nats"] == 19
    before = path.stat().st_ino
    sink.write(event("message", "does not matter"))
    assert path.stat().st_ino == before


def test_tensorboard_gets_what_steps_and_evaluations_say(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    sink = TensorBoard(tmp_path)
    for one in RUN:
        sink.write(one)
    sink.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for tag in (b"train/loss", b"train/grad_norm", b"train/learning_rate", b"validation/log_perplexity"):
        assert content.count(tag) == 1, tag
    assert b"eta/" not in content and b"evaluated_tokens" not in content


class StandIn(ModuleType):
    """Stands in for wandb: it writes down what it is told."""

    Settings = SimpleNamespace

    def __init__(self) -> None:
        super().__init__("wandb")
        self.refuses = False
        self.runs: list[dict[str, Any]] = []
        self.told: list[tuple[Any, ...]] = []
        self.summary: dict[str, str] = {}
        self.setup = lambda: SimpleNamespace(settings=SimpleNamespace(project=None, run_name=None))
        self.define_metric = lambda name, step_metric: self.told.append(("metric", name, step_metric))
        self.log = lambda figures, step: self.told.append((step, figures))
        self.finish = lambda: self.told.append(("finish",))

    def init(self, **options: Any) -> Any:
        if self.refuses:
            raise RuntimeError("api_key not configured")
        self.runs.append(options)
        return self


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    (tmp_path / "config.json").write_text(json.dumps({"benchmark": {"name": "tiny"}}))
    return stand_in


def test_wandb_gets_figures_and_lines_and_resumes_its_curve(wandb: StandIn, tmp_path: Path) -> None:
    few = event("step", iteration=4001, trained_tokens=100, loss=2.75, mfu=None, skipped=False)
    told: list[Event] = [few, EVALUATION, event("message", "the disk is full"), event("restart", 2)]
    sink = WeightsAndBiases(tmp_path, "offline")
    for one in told:
        sink.write(one)
    sink.close()
    at = {"_timestamp": 1_700_000_000.0}
    evaluated = {"validation/log_perplexity": 2.7, "validation/seconds": 30.0, "evaluated_tokens": 3_145_728}
    assert wandb.told == [
        ("metric", "*", "trained_tokens"),
        ("metric", "validation/*", "evaluated_tokens"),
        (4001, {"train/loss": 2.75, "train/skipped": False, "trained_tokens": 100, **at}),
        (4001, {**evaluated, **at}),
        (4001, {"restarts": 2, **at}),
        ("finish",),
    ]
    assert wandb.summary == {"last_message": "message: the disk is full"}
    again = WeightsAndBiases(tmp_path, "online")
    wandb.refuses = True
    with pytest.raises(ConnectionError, match="api_key not configured"):
        again.write(STEP)
    wandb.refuses = False
    again.write(STEP)
    first, second = wandb.runs
    assert (first["id"], first["mode"], first["project"]) == (second["id"], "offline", "tiny")
    assert (second["resume"], second["mode"], wandb.told[-1][0]) == ("allow", "online", 4001)


@pytest.mark.parametrize(("package", "sink"), [("tensorboardX", TensorBoard), ("wandb", WeightsAndBiases)])
def test_a_package_that_is_not_installed_is_asked_for_at_once(
    package: str, sink: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    arguments = (tmp_path,) if sink is TensorBoard else (tmp_path, "offline")
    with pytest.raises(InputError, match=f"needs {package}: pip install {package}"):
        sink(*arguments)
