"""Made-up submissions of Llama 3.1 8B, ten runs each, in this repository's log: as they are, and damaged.

The official checkers pass them in tests/benchmark/submission/test_package.py.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmark.results.judged import LLAMA8B
from benchmark.results.subjects import SubmissionPackage
from benchmark.review.verdict import own_findings
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import LLAMA_N1, LLAMA_N8, ORG, as_text, records, records_of, write_result

Damage = Callable[[Path], object]
Change = Callable[[Log], object]


def found(package: Path, ruleset: str) -> list[str]:
    return [f"{one.severity} {one.rule}" for one in own_findings(SubmissionPackage(package, ruleset))]


@pytest.mark.parametrize("ruleset", LLAMA8B.rulesets)
def test_submissions_of_one_node_and_of_eight_have_nothing_to_ask(ruleset: str, tmp_path: Path) -> None:
    write_result(tmp_path / ORG, LLAMA_N1)
    assert found(write_result(tmp_path / ORG, LLAMA_N8), ruleset) == []


def in_log(change: Change) -> Damage:
    return lambda results: changed(results, change, (1,))


def changed(results: Path, change: Change, numbers: Sequence[int] = range(10)) -> None:
    for number in numbers:
        log = Log(records_of(LLAMA_N1, LLAMA_N1.seeds[number]))
        change(log)
        (results / f"result_{number}.txt").write_text(as_text(log.records))


def slower(log: Log) -> None:
    """Each block takes longer than the one before, in the same way in all runs."""
    start, stop = (log.records[log.place(key)]["time_ms"] for key in ("run_start", "run_stop"))
    for record in log.records[log.place("run_start") :]:
        record["time_ms"] += round(0.015 * (record["time_ms"] - start) ** 2 / (stop - start))


def pauses(log: Log) -> None:
    """After every second evaluation a checkpoint is written."""
    for number in range(1, 14, 2):
        log.shift(log.place("eval_accuracy", number) + 1, 10_000)


def coarse_values(log: Log) -> None:
    for record in log.records:
        if record["key"] == "eval_accuracy":
            record["value"] = round(record["value"], 3)


HONEST: dict[str, Change] = {
    "all runs slow down alike": slower,
    "a pause after every second block": pauses,
    "values of three decimals": coarse_values,
    "the end rate from a float32 tensor": lambda log: log.set("opt_end_learning_rate", 7.999999797903001e-05),
}
"""Changes to all ten logs of which nothing is asked."""


def other_cadence(log: Log) -> None:
    """Leave every second evaluation out."""

    def kept(count: int) -> bool:
        return count == 0 or count // 12288 % 2 == 1

    log.records = [record for record in log.records if kept(record["metadata"].get("samples_count", 0))]


DAMAGES: dict[str, tuple[Damage, str, list[str]]] = {
    "nine runs": (lambda results: (results / "result_9.txt").unlink(), "6.1.0", ["error package.layout"]),
    "eleven runs": (
        lambda results: (results / "result_10.txt").write_text(as_text(records_of(LLAMA_N1, 71463))),
        "6.1.0",
        ["error package.layout"],
    ),
    "a key of 6.1.0 is missing": (
        in_log(lambda log: log.without("config_filename")),
        "6.1.0",
        ["error key.present"],
    ),
    "a key of 6.1.0 is missing in an older round": (in_log(lambda log: log.without("config_filename")), "6.0.0", []),
    "decay steps with the warm-up": (
        in_log(lambda log: log.set("opt_learning_rate_decay_steps", 1_200_000)),
        "5.1.0",
        ["error schedule.formula", "error runs.settings"],
    ),
    "more sequences evaluated than there are": (
        in_log(lambda log: log.set("eval_samples", 1056)),
        "6.1.0",
        ["error eval.samples", "error runs.settings"],
    ),
    "a benchmark that is none": (
        in_log(lambda log: log.set("submission_benchmark", "llama3_8b")),
        "6.1.0",
        ["error value.benchmark"],
    ),
    "a log of another benchmark": (
        lambda results: (results / "result_1.txt").write_text(as_text(records(1001))),
        "6.1.0",
        ["error value.benchmark", "error rcp.test", "error package.layout"],
    ),
    "another cadence": (in_log(other_cadence), "6.1.0", ["warning eval.cadence", "warning speed.block"]),
    "the seed of another run": (in_log(lambda log: log.set("seed", LLAMA_N1.seeds[0])), "6.1.0", ["error runs.seeds"]),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_result(tmp_path_factory.mktemp("llama") / ORG, LLAMA_N1)


@pytest.mark.parametrize("name", HONEST)
def test_honest_runs_have_nothing_to_ask(name: str, package: Path, tmp_path: Path) -> None:
    shutil.copytree(package, tmp_path / ORG)
    changed(tmp_path / ORG / LLAMA_N1.folder, HONEST[name])
    assert found(tmp_path / ORG, "6.1.0") == []


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(name: str, package: Path, tmp_path: Path) -> None:
    spoil, ruleset, due = DAMAGES[name]
    shutil.copytree(package, tmp_path / ORG)
    spoil(tmp_path / ORG / LLAMA_N1.folder)
    assert found(tmp_path / ORG, ruleset) == due
