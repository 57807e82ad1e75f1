"""What our rules say of runs of ours, of odd ones, and of files that are no logs."""

import dataclasses
import random
from pathlib import Path

import pytest

from benchmark.config.benchmarks import GPT3_175B, REHEARSAL
from benchmark.judging.results.score import Score, score
from benchmark.judging.results.subjects import ResultSet, find_subjects
from benchmark.judging.review.findings import STOPPED, Finding
from benchmark.judging.review.official.tool_verdicts import ToolOutcome, ToolVerdict
from benchmark.judging.review.verdict import excused, own_findings, review
from tests.benchmark.judging.review.fixture import made_up, records, summary_of, write_run
from tests.benchmark.judging.review.reviews import review_of, verdict
from tests.benchmark.judging.review.submission_changes import abort
from tests.benchmark.run_record.events.written_log import write_log

SHAPE_OF_TIME = ("clock.", "curve.", "init.", "speed.", "stop.", "eval.time", "cache.")
"""Families that a log made in a moment, of six made-up values, cannot do right by."""
CURVE = [2.751, 2.728, 2.716, 2.708, 2.701, 2.69]


@pytest.mark.parametrize(
    ("name", "verdicts", "expected"),
    [
        ("aborted", ("passed", "passed", "failed"), ("passed", "passed", "excused")),
        ("aborted", ("failed", "passed", "failed"), ("failed", "passed", "failed")),
        ("aborted", ("failed", "passed", "passed"), ("failed", "passed", "passed")),
        ("aborted", ("passed", "passed", "did not run"), ("passed", "passed", "did not run")),
        ("as it was", ("passed", "passed", "failed"), ("passed", "passed", "failed")),
    ],
)
def test_one_aborted_run_of_three_need_not_comply(
    name: str, verdicts: tuple[ToolOutcome, ...], expected: tuple[ToolOutcome, ...]
) -> None:
    logs = made_up().logs
    if name == "aborted":
        abort(logs[2], 12)
    runs = [summary_of(log.records, Path(f"result_{number}.txt")) for number, log in enumerate(logs)]
    one = ResultSet("x", "4.1.0", [run.log.path for run in runs], None)
    one.__dict__["runs"] = runs
    checks = [
        ToolVerdict("compliance", str(run.log.path), outcome, (), (), 0.1)
        for run, outcome in zip(runs, verdicts, strict=True)
    ]
    found = excused(checks, [one], [])
    assert tuple(check.outcome for check in found) == expected
    assert [check.passed for check in found] == [outcome in ("passed", "excused") for outcome in expected]


def of_run(path: Path) -> list[Finding]:
    return list(own_findings(ResultSet("run", "4.1.0", [path], path.parent)))


@pytest.mark.parametrize("size", [1536, 2048, 3072])
def test_run_of_ours_has_no_finding(size: int, tmp_path: Path) -> None:
    write_log(tmp_path, dataclasses.replace(GPT3_175B, global_batch_size=size), CURVE)
    assert [one for one in of_run(tmp_path / "result_0.txt") if not one.rule.startswith(SHAPE_OF_TIME)] == []


def test_rehearsals_have_no_finding_and_are_tested_against_their_own_points(tmp_path: Path) -> None:
    paths = []
    for number, evaluations in enumerate((13, 13, 14)):
        noise = random.Random(number)
        values = [5.6 - place * 3.16 / evaluations + noise.gauss(0, 1e-2) for place in range(evaluations)]
        write_log(tmp_path / str(number), REHEARSAL, [*values[1:], 2.42 + number * 1e-3])
        paths.append(tmp_path / str(number) / "result_0.txt")
    (subject,) = find_subjects(paths, None)
    assert isinstance(subject, ResultSet)
    assert subject.convergence.standing in ("passes", "passes, scaled")
    assert subject.convergence.batch_size == 16
    told = [one for one in own_findings(subject) if not one.rule.startswith(SHAPE_OF_TIME)]
    assert {finding.severity for finding in told} <= {"note"}


def test_review_passes_when_every_tool_did_and_no_rule_has_an_error(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", records(1))
    assert review_of([path]).passed
    assert not review_of([path], verdict(), verdict("no")).passed
    assert not review_of([write_run(tmp_path / "bad", records(1, rate=1e-5))]).passed
    (subject,) = review_of([path]).subjects
    assert subject.declined["seed"] == "for 2 runs or more"
    without = dataclasses.replace(subject, checks=())
    assert not without.passed
    assert not dataclasses.replace(review_of([path]), subjects=()).passed


def test_a_fault_of_ours_in_one_result_leaves_the_others_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write_run(tmp_path / str(size), records(1, batch_size=size)) for size in (1536, 2048)]

    def stops(one: ResultSet) -> Score:
        if "2048" in str(one.files[0]):
            raise ZeroDivisionError("\x1b[31m")
        return score(one)

    monkeypatch.setattr("benchmark.judging.review.verdict.score", stops)
    monkeypatch.setattr(
        "benchmark.judging.review.verdict.run_checkers", lambda subjects, tools, done: [[verdict()] for _ in subjects]
    )
    found = review(paths, "4.1.0")
    assert [one.verdict for one in found.subjects] == ["acceptable", "rejected"]
    (stopped,) = found.subjects[1].findings
    assert (stopped.rule, stopped.observed) == (STOPPED, "the review stopped: ZeroDivisionError: ?[31m")
    assert found.verdict == "rejected"
