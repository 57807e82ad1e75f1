"""A clock that is set while a run goes on: a question at each place; no error of ours and no second question."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from benchmark.judging.results.judged import JUDGED
from benchmark.judging.results.subjects import ResultSet
from benchmark.judging.review.verdict import own_findings
from tests.benchmark.judging.review.fixture import GPT3_MADE, LLAMA_N8, Log, MadeUp, records_of, write_run
from tests.benchmark.judging.review.submission_changes import MINUTE_MS

PLACES: Mapping[str, Callable[[Log], int]] = {
    "initialisation": lambda log: log.place("init_stop"),
    "run_start": lambda log: log.place("run_start"),
    "first block": lambda log: log.place("block_stop"),
    "evaluation": lambda log: log.place("eval_accuracy", 9),
    "block": lambda log: log.place("block_start", 9),
    "last block": lambda log: log.place("block_stop", -1),
    "run_stop": lambda log: log.place("run_stop"),
    "end": lambda log: log.place("run_stop") + 1,
}
BACKWARDS, LOST, UNTIMED = "warning clock.backwards", "warning runs.lost_time", "warning init.untimed"
FORWARDS = {"initialisation": "error init.time", "run_start": UNTIMED, "end": ""}
"""Findings of a clock that is set on by an hour. The official checker measures the initialisation too."""


@pytest.mark.parametrize("made", [GPT3_MADE, LLAMA_N8], ids=lambda one: one.benchmark.name)
@pytest.mark.parametrize("minutes", [-5, -60, -24 * 60, 60, 24 * 60])
def test_clock_that_is_set_raises_one_question(made: MadeUp, minutes: int, tmp_path: Path) -> None:
    """The runs take 52 and 48 minutes, so that most of these clocks are before run_start at run_stop."""
    raised = {}
    for name, place in PLACES.items():
        log = Log(records_of(made, made.seeds[0]))
        log.shift(place(log), minutes * MINUTE_MS)
        path = write_run(tmp_path / name, log.records)
        found = own_findings(ResultSet(made.name, JUDGED[made.benchmark.mlperf_name].rulesets[-1], (path,), None))
        raised[name] = ", ".join(f"{one.severity} {one.rule}" for one in found if one.rule != "rcp.test")
    backwards = {**dict.fromkeys(PLACES, BACKWARDS), "end": ""}
    assert raised == (backwards if minutes < 0 else {**dict.fromkeys(PLACES, LOST), **FORWARDS})
