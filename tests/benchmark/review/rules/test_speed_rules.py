"""Clocks that do not agree, and systems too fast for their devices; what accepted runs do is no fault."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.review.findings import Deviation, Run
from benchmark.review.rules import speed_rules
from tests.benchmark.review.damage import Log, T
from tests.benchmark.review.fixture import SYSTEM, as_text, records, summary_of, write_package

RUN_RULES = (
    "steps_fit", "steps_fill", "step_tokens", "fast_blocks", "fast_evaluations", "impossible_blocks", "stop_on_clock",
    "long_after_stop", "throughput", "hasty_evaluations", "impossible_evaluations", "too_fast_for_any",
)  # fmt: skip


def with_steps(seed: int = 1, scale: float = 1.0) -> Log:
    """The run with its twelve step times per block, whose sum is ``scale`` times 110 s of a block of 130 s."""
    log = Log(records(seed))
    noise = random.Random(seed)
    for number in range(24):
        stop = log.place("block_stop", number)
        end = log.records[stop]["time_ms"]
        for step in range(12):
            value = {"train_step_timing": scale * (110 / 12 + noise.gauss(0, 0.01))}
            record = log.copied(stop, key="tracked_stats", value=value, event_type="POINT_IN_TIME")
            record["metadata"]["step"] = number * T + (step + 1) * T / 12
            record["time_ms"] = end - 110_000 + (step + 1) * 9_100
            log.records.insert(stop + step, record)
    return log


def told(log: Log) -> dict[str, list[Deviation]]:
    run = summary_of(log.records)
    found = {name: list(getattr(speed_rules, name)(run)) for name in RUN_RULES}
    return {name: deviations for name, deviations in found.items() if deviations}


def cut(milliseconds: int, block: int) -> Callable[[Log], None]:
    return lambda log: log.shift(log.place("eval_accuracy", block), -milliseconds)


def short_evaluation(log: Log) -> None:
    log.shift(log.place("eval_accuracy", 9), -8_000)


def evaluations_of(seconds: float) -> Callable[[Log], None]:
    def change(log: Log) -> None:
        for number in range(24):
            log.shift(log.place("eval_accuracy", number), round(seconds * 1000) - 10_000)

    return change


def stop_a_little_early(log: Log) -> None:
    log.records[log.place("run_stop")]["time_ms"] = log.records[log.place("eval_accuracy", -1)]["time_ms"] - 1


def hidden_first_block(log: Log) -> None:
    """run_start, and all before it, so much later."""
    first = log.place("block_start")
    for record in log.records[: first + 1]:
        record["time_ms"] += 100_000


def hurried(log: Log) -> None:
    """All of it ten times faster than the steps it logs."""
    first = log.records[log.place("run_start")]["time_ms"]
    for record in log.records[log.place("run_start") :]:
        record["time_ms"] = first + (record["time_ms"] - first) // 10


def in_hours(log: Log) -> None:
    for record in log.records:
        if record["key"] == "tracked_stats":
            record["value"] = {"train_step_timing": record["value"]["train_step_timing"] / 3600}


def steps_of_a_longer_run(log: Log) -> None:
    log.records[log.place("tracked_stats", -1)]["metadata"]["step"] = 30 * T


def steps_back(log: Log) -> None:
    log.records[log.place("tracked_stats", 50)]["metadata"]["step"] = T


def years_later(log: Log) -> None:
    log.records[-1]["time_ms"] += 100_000_000


def in_a_second(log: Log) -> None:
    first = log.records[0]["time_ms"]
    for record in log.records:
        record["time_ms"] = first + (record["time_ms"] - first) // 2000


DAMAGES: tuple[tuple[str, Callable[[Log], None], set[str]], ...] = (
    ("half a minute cut out of a block", cut(30_000, 7), {"steps_fit", "fast_blocks", "fast_evaluations"}),
    ("a second cut out of a block", cut(6_000, 12), {"fast_blocks", "fast_evaluations"}),
    ("an evaluation of two seconds", short_evaluation, {"fast_blocks", "fast_evaluations"}),
    ("evaluations of five seconds", evaluations_of(5), {"hasty_evaluations"}),
    ("evaluations of a tenth of a second", evaluations_of(0.1), {"impossible_evaluations"}),
    ("run_stop a millisecond early", stop_a_little_early, {"stop_on_clock"}),
    ("the first block hidden", hidden_first_block, {"steps_fit", "fast_blocks", "impossible_blocks"}),
    ("the clock of another run", hurried, {"steps_fit"}),
    ("steps in hours", in_hours, {"steps_fill"}),
    ("steps after the end", steps_of_a_longer_run, {"step_tokens"}),
    ("steps that go back", steps_back, {"step_tokens"}),
    ("records a day after the stop", years_later, {"long_after_stop"}),
    ("a run of a second", in_a_second, {"steps_fit", "too_fast_for_any"}),
)


@pytest.mark.parametrize(("name", "spoil", "rules"), DAMAGES, ids=lambda value: value if isinstance(value, str) else "")
def test_damaged_clock_is_found(name: str, spoil: Callable[[Log], None], rules: set[str]) -> None:
    log = with_steps()
    spoil(log)
    assert set(told(log)) == rules, name


def test_run_without_fault_has_none() -> None:
    assert told(with_steps()) == {}
    assert told(Log(records(1))) == {}


def test_slow_block_of_a_restart_is_not_asked_for_its_steps() -> None:
    log = with_steps()
    place = log.place("tracked_stats", 80)
    restart = log.copied(place, key="restart", value=1)
    log.records.insert(place, restart)
    log.shift(place + 1, 600_000)
    assert told(log) == {}


@pytest.mark.parametrize(("factor", "wrong"), [(1.04, 0), (1.06, 1), (0.94, 1)])
def test_throughput_against_tokens_over_time(factor: float, wrong: int) -> None:
    log = Log(records(1))
    place = log.place("run_stop")
    speed = summary_of(log.records).tokens_per_s or 0
    log.records.insert(place, log.copied(place, key="tracked_stats", value={"throughput": factor * speed}))
    assert len(list(speed_rules.throughput(summary_of(log.records)))) == wrong


@pytest.mark.parametrize(("factor", "wrong"), [(1.1, 0), (2.0, 1), (0.5, 1)])
def test_throughput_of_every_block_against_tokens_over_time(factor: float, wrong: int) -> None:
    log = Log(records(1))
    speed = summary_of(log.records).tokens_per_s or 0
    for number in range(24):
        place = log.place("block_stop", number)
        log.records.insert(place, log.copied(place, key="tracked_stats", value={"throughput": factor * speed}))
    assert len(list(speed_rules.throughput(summary_of(log.records)))) == wrong


def set_of(package: Path, **fields: object) -> ResultSet:
    path = package / "systems" / f"{SYSTEM}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return SubmissionPackage(package, "4.1.0").sets[0]


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({}, []),
        ({"number_of_nodes": "50"}, ["above_bf16_peak"]),
        ({"number_of_nodes": "8"}, ["above_peak"]),
        ({"accelerators_per_node": "1"}, ["above_peak"]),
        ({"accelerator_model_name": "NVIDIA A100-SXM4-80GB"}, ["above_peak"]),
        ({"accelerator_model_name": "NVIDIA H100-PCIe"}, ["above_bf16_peak"]),
        ({"accelerator_model_name": "B200", "number_of_nodes": "512"}, ["far_below_peak"]),
        ({"accelerator_model_name": "an accelerator to come"}, ["unknown_device"]),
        ({"number_of_nodes": "0"}, []),
    ],
)
def test_speed_against_the_devices_of_the_description(
    fields: dict[str, object], rules: list[str], tmp_path: Path
) -> None:
    one = set_of(write_package(tmp_path), **fields)
    found = {
        name: list(getattr(speed_rules, name)(one))
        for name in ("above_peak", "above_bf16_peak", "far_below_peak", "unknown_device")
    }
    assert [name for name, deviations in found.items() if deviations] == rules
    assert all(len(deviations) in (1, 3) for deviations in found.values() if deviations)


def test_systems_of_the_same_devices_are_about_as_fast(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    other = package / "results" / "acme_n8" / "gpt3"
    other.mkdir(parents=True)
    for number in range(3):
        (other / f"result_{number}.txt").write_text(as_text(records(30 + number)))
    text = (package / "systems" / f"{SYSTEM}.json").read_text()
    (package / "systems" / "acme_n8.json").write_text(text.replace('"64"', '"8"'))
    (found,) = speed_rules.systems_apart(SubmissionPackage(package, "4.1.0"))
    assert found.path == package / "results" / SYSTEM / "gpt3"
    assert "in acme_n8 with the same devices" in found.found


def test_blocks_are_told_with_their_tokens() -> None:
    run: Run = summary_of(records(1))
    assert [block.tokens for block in speed_rules.blocks(run)] == [T] * 24
    assert sum(block.length_ms for block in speed_rules.blocks(run)) == run.evaluations[-1].time_ms - (
        run.run_start_ms or 0
    )


@pytest.mark.parametrize(
    ("share", "rule"), [(1.0, ""), (1 / 2048, "unit"), (1 / 512, "unit"), (0.5, "error"), (3, "error")]
)
def test_throughput_in_another_unit_is_a_question(share: float, rule: str) -> None:
    log = Log(records(1))
    run = summary_of(log.records)
    stats = log.copied(
        log.place("run_stop"), key="tracked_stats", value={"throughput": share * (run.tokens_per_s or 0)}
    )
    log.records.insert(log.place("run_stop"), stats)
    run = summary_of(log.records)
    assert bool(list(speed_rules.throughput(run))) == (rule == "error")
    assert bool(list(speed_rules.throughput_unit(run))) == (rule == "unit")
