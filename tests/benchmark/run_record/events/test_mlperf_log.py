"""The MLPerf log: what the official checker says of the events of the real benchmark, on every way out."""

import dataclasses
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B, REHEARSAL, REHEARSAL_LLAMA
from benchmark.config.number_formats import Precision
from benchmark.config.systems import SYSTEMS
from benchmark.judging.results.judged import DISCLOSURE, JUDGED
from benchmark.run_record.endings import Ending
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.events.mlperf_log import LogMark, MlperfLog, log_disclosure
from tests.benchmark.judging.review.reviews import check_file
from tests.benchmark.run_record.events.recorder import event
from tests.benchmark.run_record.events.written_log import write_log


@pytest.mark.slow
@pytest.mark.parametrize(("benchmark", "size"), [(GPT3_175B, 2048), (LLAMA31_8B, 96)])
def test_official_checker_passes_the_benchmarks_events(benchmark: Benchmark, size: int, tmp_path: Path) -> None:
    target = benchmark.target_log_perplexity
    assert target is not None
    changed = dataclasses.replace(benchmark, global_batch_size=size)
    assert write_log(tmp_path, changed, [target + 0.05, target])[0] == "success"
    for ruleset in JUDGED[benchmark.mlperf_name].rulesets:
        verdict = check_file(tmp_path / "result_0.txt", ruleset)
        assert (verdict.passed, verdict.notes, verdict.complaints) == (True, (), ()), ruleset
    if benchmark.mlperf_name == LLAMA31_8B.mlperf_name:
        _newest_ruleset_asks_for_what_is_disclosed(tmp_path / "result_0.txt")


def _newest_ruleset_asks_for_what_is_disclosed(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not any(f'"key": "{key}"' in line for key in DISCLOSURE)))
    assert check_file(path, "6.0.0").passed
    complaints = " ".join(check_file(path, "6.1.0").complaints)
    assert not [key for key in DISCLOSURE if key not in complaints]


def test_events_have_the_order_and_values_of_published_logs(tmp_path: Path) -> None:
    _, log = write_log(tmp_path, dataclasses.replace(GPT3_175B, global_batch_size=2048))
    keys = [event["key"] for event in log]
    assert keys[:3] == ["cache_clear", "init_start", "submission_benchmark"]
    block = ["block_start", "tracked_stats", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    after_init = ["init_stop", "run_start", "epoch_start"]
    end = ["run_stop", "train_samples", "trained_samples", "epoch_stop"]
    assert keys[keys.index("init_stop") :] == after_init + block * 6 + end
    values = {event["key"]: event["value"] for event in log}
    assert values["opt_learning_rate_warmup_steps"] == 199  # ceil(265 x 1536 / 2048)
    assert values["opt_learning_rate_decay_steps"] == 81450
    assert values["init_checkpoint_step"] == 3000
    assert values["gradient_accumulation_steps"] == 64  # of two samples on 512 / (4 x 8) data-parallel groups
    assert values["opt_base_learning_rate"] == 2e-5
    tokens = [event["metadata"]["epoch_num"] for event in log if event["key"] == "eval_accuracy"]
    assert tokens == [50_331_648 * count for count in range(1, 7)]
    starts = [event["metadata"]["first_epoch_num"] for event in log if event["key"] == "block_start"]
    assert starts == [0, *tokens[:-1]]
    assert values["train_samples"] == values["trained_samples"] == tokens[-1]
    assert all(event["metadata"]["file"].startswith("benchmark/") for event in log)
    times = [event["time_ms"] for event in log]
    assert times == sorted(times)
    for one in log:  # the RCP checker looks for these words in whole lines
        for word in ("eval_accuracy", "eval_error", "global_batch_size", "submission_benchmark"):
            assert one["key"] == word or word not in json.dumps(one)


def test_llamas_events_count_samples_and_have_its_own_keys(tmp_path: Path) -> None:
    status, log = write_log(tmp_path, dataclasses.replace(LLAMA31_8B, global_batch_size=32), [3.5, 3.3])
    assert status == "success"
    values = {event["key"]: event["value"] for event in log}
    assert values["opt_adamw_weight_decay"] == 0.1
    assert values["opt_learning_rate_decay_steps"] == 1_200_000 - values["opt_learning_rate_warmup_steps"]
    assert (values["max_steps"], values["eval_samples"], values["init_checkpoint_step"]) == (1_200_000, 1024, 0)
    assert (values["target_accuracy"], values["train_samples"]) == (3.3, 2 * 12288)
    assert not values.keys() & {"opt_adam_beta_1", "opt_weight_decay"}
    counts = [event["metadata"]["samples_count"] for event in log if event["key"] in ("block_start", "eval_accuracy")]
    assert counts == [0, 12288, 12288, 2 * 12288]


@pytest.mark.parametrize(
    ("precision", "fp32_products", "layout", "due"),
    [
        ("bf16", "fp32", {}, ("bfloat16", "bfloat16", "bfloat16", 2, 1)),
        ("fp8", "fp32", {}, ("fp8", "bfloat16", "fp8", 2, 1)),  # shards of weights are gathered in FP8
        ("fp8", "fp32", {"replicas": 4}, ("fp8", "bfloat16", "bfloat16", 2, 1)),
        ("fp8", "fp32", {"tensor_parallel": 1, "replicas": 8}, ("fp8", "bfloat16", "fp32", 1, 1)),
        (
            "bf16",
            "tf32",
            {"tensor_parallel": 1, "replicas": 8},
            ("bfloat16", "bfloat16", "fp32", 1, 1),
        ),
        ("fp32", "tf32", {"pipeline_parallel": 4}, ("tf32", "tf32", "fp32", 2, 4)),
        ("fp32", "fp32", {}, ("fp32", "fp32", "fp32", 2, 1)),
    ],
)
def test_disclosed_is_what_computes_and_what_is_sent(
    precision: Precision, fp32_products: str, layout: dict[str, Any], due: tuple[Any, ...], tmp_path: Path
) -> None:
    fields = {"tensor_parallel": 2, **layout}
    system, log = dataclasses.replace(SYSTEMS["dgxh100_n1"], **fields), MlperfLog(tmp_path / "result_0.txt")
    events = EventLog([log])
    log_disclosure(events, system, precision=precision, fp32_products=fp32_products)
    events.close()
    records = map(json.loads, (tmp_path / "result_0.txt").read_text().replace(":::MLLOG ", "").splitlines())
    found = {record["key"]: record["value"] for record in records}
    linear, attention, sent, tensor, pipeline = due
    assert found == {
        "lowest_numerical_precision_in_linear": linear,
        "lowest_numerical_precision_in_attn": attention,
        "lowest_numerical_precision_in_comm": sent,
        "tensor_parallelism": tensor,
        "pipeline_parallelism": pipeline,
        "context_parallelism": 1,
        "expert_parallelism": 1,
        "micro_batch_size": 1,
        "config_filename": "config.json",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "arguments", "status"),
    [
        ({}, {"values": [2.6900001, 2.69, 2.5]}, "success"),  # at the target itself
        ({"train_samples": 6_144_000 + 20 * 1536}, {"values": [2.8] * 2}, "target not reached"),
        ({"train_samples": 6_144_000 + 20 * 1536, "target_log_perplexity": None}, {"values": [2.8] * 2}, "success"),
        ({}, {"stop_at_step": 20}, "interrupted"),
        ({}, {"error_at_step": 20}, None),
        ({}, {"values": [float("nan")] * 6, "error_at_step": 90}, None),
    ],
)
def test_one_run_stop_on_every_way_out(
    change: dict[str, Any], arguments: dict[str, Any], status: Ending | None, tmp_path: Path
) -> None:
    found, log = write_log(tmp_path, dataclasses.replace(GPT3_175B, **change), **arguments)
    assert found == status
    if "train_samples" in change:  # the last evaluation comes at the end
        blocks = [event["metadata"] for event in log if event["key"] == "block_stop"]
        tokens = [(block["first_epoch_num"], block["epoch_count"]) for block in blocks]
        assert tokens == [(0, 16 * 1536 * 2048), (16 * 1536 * 2048, 4 * 1536 * 2048)]
    stops = [event for event in log if event["key"] == "run_stop"]
    reached = status == "success" and "target_log_perplexity" not in change
    assert [event["metadata"]["status"] for event in stops] == ["success" if reached else "aborted"]
    assert check_file(tmp_path / "result_0.txt", "4.1.0").passed is reached


@pytest.mark.parametrize(
    ("benchmark", "ruleset", "more"), [(REHEARSAL, "4.1.0", ""), (REHEARSAL_LLAMA, "6.1.0", "eval_samples, ")]
)
def test_rehearsal_is_judged_by_its_own_numbers(benchmark: Benchmark, ruleset: str, more: str, tmp_path: Path) -> None:
    target = benchmark.target_log_perplexity
    assert target is not None
    write_log(tmp_path / "a", benchmark, [target + 0.1, target])
    verdict = check_file(tmp_path / "a" / "result_0.txt", ruleset)
    assert verdict.passed, verdict.complaints
    replaced = f"eval_accuracy, {more}max_sequence_length, opt_base_learning_rate, submission_benchmark"
    assert verdict.notes == (f"rehearsal: the official rules for {replaced} do not apply",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"target_log_perplexity": 2.6},  # a value above the rehearsal's target counts as success
        {"optimizer": dataclasses.replace(REHEARSAL.optimizer, adam_beta2=0.999)},  # an official rule still applies
        {"mlperf_name": "gpt3"},  # a rehearsal that calls itself the benchmark
    ],
)
def test_rehearsal_that_is_not_one_fails(change: dict[str, Any], tmp_path: Path) -> None:
    write_log(tmp_path, dataclasses.replace(REHEARSAL, **change), [2.6, 2.5, 2.43])
    assert not check_file(tmp_path / "result_0.txt", "4.1.0").passed


def test_the_bytes_of_a_record_and_what_is_left_out(tmp_path: Path) -> None:
    log = MlperfLog(tmp_path / "result_0.txt")
    log.write(event("eval_accuracy", 2.69, epoch_num=4096))
    log.write(dataclasses.replace(event("step", loss=2.5), mlperf=False))
    log.close()
    expected = (
        ':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", '
        '"value": 2.69, "metadata": {"file": "benchmark/training/loop.py", "lineno": 7, "epoch_num": 4096}}\n'
    )
    assert (tmp_path / "result_0.txt").read_text() == expected


def keys(path: Path) -> list[str]:
    return [json.loads(line.removeprefix(":::MLLOG "))["key"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("written", range(5))
def test_a_mark_has_every_event_reported_before_it_however_far_the_disk_is(written: int, tmp_path: Path) -> None:
    """Of those that are pending, the first may have been written already."""
    path = tmp_path / "result_0.txt"
    reported = [event("a"), dataclasses.replace(event("step"), mlperf=False), event("b"), event("c"), event("d")]
    for taken in range(written + 1):
        log = MlperfLog(path)
        log.go_on(LogMark())
        for one in reported[:written]:
            log.write(one)
        mark = log.mark(reported[taken:])
        log.write(event("after the mark"))
        log.close()
        continued = MlperfLog(path)
        assert continued.go_on(mark) == 0
        assert continued.mark(()) == LogMark(path.stat().st_size)
        continued.write(event("restart"))
        continued.close()
        assert keys(path) == ["a", "b", "c", "d", "restart"]
    MlperfLog(path).go_on(LogMark())
    assert path.read_bytes() == b""


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_lines_that_the_disk_refuses_or_loses_are_in_the_mark_and_written_once(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result_0.txt"
    log, events = MlperfLog(path), [event("a"), event("b"), event("c")]
    log.write(events[0])

    def fail(*_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(os, call, fail)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                log.write(events[1])
        mark = log.mark(events[1:])
    if call == "fsync":
        os.truncate(path, log.mark(()).size)  # what the system does not say
    for one in events[1:]:
        log.write(one)
    log.close()
    assert keys(path) == ["a", "b", "c"]
    continued = MlperfLog(path)
    assert continued.go_on(mark) == 0
    continued.write(event("restart"))
    assert keys(path) == ["a", "b", "c", "restart"]


def test_a_log_that_somebody_cut_is_said_to_be_short(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text("x" * 99 + "\n")
    assert MlperfLog(path).go_on(LogMark(250, ("the rest",))) == 150
    assert path.read_text().splitlines()[1] == "the rest"
