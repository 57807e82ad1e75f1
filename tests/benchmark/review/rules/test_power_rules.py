"""Power logs of a made-up package, honest and otherwise."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.findings import apply
from benchmark.review.rules.rule_table import SET_RULES
from tests.benchmark.review.fixture import SEEDS, SYSTEM, Record, records, write_package

NODES = 64
WATTS = 9000.0
"""Of a node of eight devices."""
RULES = [rule for rule in SET_RULES if rule.name.startswith("power.")]
Edit = Callable[[list[Record]], list[Record]]


def power_log(seed: int, watts: float = WATTS) -> list[Record]:
    """A reading each minute, from ten seconds before the run to ten seconds after it."""
    run = records(seed)
    start, stop = (next(one["time_ms"] for one in run if one["key"] == key) for key in ("run_start", "run_stop"))

    def record(key: str, time_ms: int, value: Any = None) -> Record:
        fields = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
        return {**fields, "metadata": {}}

    times = [*range(start + 50_000, stop + 10_000, 60_000), stop + 10_000]
    readings = [record("power_reading", time, watts) for time in times]
    ends = [record("power_measurement_start", start - 10_000), record("power_measurement_stop", stop + 10_000)]
    return [ends[0], *readings, ends[1]]


def told(folder: Path, edit: Edit = lambda log: log, nodes: int = NODES, watts: float = WATTS) -> list[str]:
    """Rules and what they found in a package whose nodes all have such logs of the first run."""
    package = write_package(folder)
    place = package / "results" / SYSTEM / "gpt3" / "power" / "result_0"
    place.mkdir(parents=True)
    text = "".join(f":::MLLOG {json.dumps(record)}\n" for record in edit(power_log(SEEDS[0], watts)))
    for number in range(nodes):
        (place / f"node_{number}.txt").write_text(text)
    (one,) = SubmissionPackage(package, "4.1.0").sets
    return sorted({f"{finding.rule}: {finding.found}" for finding in apply(RULES, one, package)})


def of_key(key: str, **changes: Any) -> Edit:
    return lambda log: [{**one, **changes} if one["key"] == key else one for one in log]


def test_honest_logs(tmp_path: Path) -> None:
    assert told(tmp_path) == []
    without_stop: Edit = lambda log: log[:-1]  # noqa: E731
    assert told(tmp_path / "again", without_stop) == []


@pytest.mark.parametrize(
    ("edit", "nodes", "watts", "expected"),
    [
        (None, 64, 6.5, "power.energy: "),
        (None, 64, 9e6, "power.energy: 1,125,000 W for each of 512 accelerators"),
        (None, 63, WATTS, "power.energy: power logs of 63 nodes"),
        (lambda log: log[1:], 64, WATTS, "power.energy: 0 power_measurement_start, 1 power_measurement_stop"),
        (lambda log: [log[0], *log], 64, WATTS, "power.energy: 2 power_measurement_start"),
        (lambda log: [log[0], log[-1]], 64, WATTS, "power.energy: 1 power_measurement_start, 1 power_measurement_stop"),
        (of_key("power_reading", value=-1), 64, WATTS, "power.energy: 1 power_measurement_start"),
        (of_key("power_reading", value={"value": 9000}), 64, WATTS, "power.energy: could not convert"),
        (lambda log: [*log[:20], log[-1]], 64, WATTS, "power.energy: "),
        (
            lambda log: [log[0], *log[1:20], {**log[-1], "time_ms": log[19]["time_ms"]}],
            64,
            WATTS,
            "power.energy: 1,990 s of 3,120 s without a reading",
        ),
        (
            lambda log: [{**log[0], "key": "conversion_eff", "value": 0.5}, *log],
            64,
            WATTS,
            "power.energy: conversion_eff 0.5, by which",
        ),
        (lambda log: [], 64, WATTS, "power.energy: 0 power_measurement_start"),
    ],
)
def test_what_cannot_be_the_energy(edit: Edit | None, nodes: int, watts: float, expected: str, tmp_path: Path) -> None:
    found = told(tmp_path, edit or (lambda log: log), nodes, watts)
    assert any(one.startswith(expected) for one in found), found
    assert not any(one.startswith("review.") for one in found)
