"""Official tools count only when their output proves that they ran; their crashes and time-outs are told apart."""

from pathlib import Path

import pytest

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.official_checkers import run_checkers
from benchmark.review.official_tools import Proof, Task, run_task
from benchmark.review.verdict import review
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import ORG, SYSTEM, as_text, records, write_package

SUCCESS = {"(?m)^INFO - SUCCESS$": 1}
TOOLS_OF_A_PACKAGE = [
    "RCP",
    "compliance",
    "compliance",
    "compliance",
    "package",
    "repository",
    "seed",
    "summarizer",
    "system description",
]


def tool(code: str, **proof: object) -> Task:
    return Task("tool", "subject", ["-c", code], Proof(SUCCESS, ("Skipping",)), {})


@pytest.mark.parametrize(
    ("code", "outcome", "complaint"),
    [
        ("print('INFO - SUCCESS')", "passed", ""),
        ("print('all is well')", "failed", "the output has 0 of 1 lines with 'INFO - SUCCESS$'"),
        ("print('INFO - SUCCESS\\nINFO - SUCCESS')", "failed", "the output has 2 of 1 lines"),
        ("print('Skipping benchmark: gpt3\\nINFO - SUCCESS')", "failed", "the output has 'Skipping'"),
        ("print('INFO - SUCCESS'); raise SystemExit(1)", "failed", "exit status 1"),
        ("print('INFO - SUCCESS'); print(1 / 0)", "did not run", "ZeroDivisionError"),
        ("import time; time.sleep(60)", "did not run", "no answer within 1 s"),
        ("print('INFO - SUCCESS'); print('x' * 20_000_000)", "passed", ""),
    ],
)
def test_proof(code: str, outcome: str, complaint: str) -> None:
    check = run_task(tool(code), timeout_s=1 if "sleep" in code else 60)
    assert check.outcome == outcome
    assert any(complaint in line for line in check.complaints) or not complaint


def test_nothing_in_a_package_is_imported(tmp_path: Path) -> None:
    """A submitter's folder may be named like a module, and hold code."""
    package = write_package(tmp_path)
    named = package.rename(tmp_path / "yaml")
    (named / "__init__.py").write_text("raise SystemExit('imported')")
    (named / "results" / "json.py").write_text("raise SystemExit('imported')")
    (checks,) = run_checkers([SubmissionPackage(named, "4.1.0")])
    assert all(check.passed for check in checks), checks


@pytest.mark.parametrize("ruleset", ["3.0.0", "4.1.0"])
def test_every_tool_runs_on_a_package(ruleset: str, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    before = sorted(path.relative_to(package) for path in package.rglob("*"))
    (subject,) = review([package], ruleset).subjects
    assert subject.passed, subject
    assert sorted(check.tool for check in subject.checks) == TOOLS_OF_A_PACKAGE
    assert subject.not_applicable == ()
    assert sorted(path.relative_to(package) for path in package.rglob("*")) == before


def test_name_that_the_tools_take_for_a_pattern_is_replaced_for_them(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    name = f"{SYSTEM}[1]"
    (package / "results" / SYSTEM).rename(package / "results" / name)
    (package / "systems" / f"{SYSTEM}.json").rename(package / "systems" / f"{name}.json")
    (subject,) = review([package], "4.1.0").subjects
    assert all(check.passed for check in subject.checks), subject.checks
    assert [finding.rule for finding in subject.of("error")] == ["package.names", "package.names"]
    assert any(name in note for check in subject.checks for note in check.notes)


def test_skipped_benchmark_and_crash_are_no_success(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "results" / SYSTEM / "gpt3").rename(package / "results" / SYSTEM / "gpt-3")
    (subject,) = review([package], "4.1.0").subjects
    outcomes = {check.tool: (check.outcome, " ".join(check.complaints)) for check in subject.checks}
    assert outcomes["package"][0] == "failed"
    assert "Skipping benchmark" in outcomes["package"][1]
    assert outcomes["summarizer"][0] == "did not run"
    assert "AssertionError" in outcomes["summarizer"][1]


def test_one_failed_run_of_three_has_a_score_and_no_pass(tmp_path: Path) -> None:
    """The official tools accept it under olympic scoring; the score is then the slower of the others."""
    package = write_package(tmp_path)
    log = Log(records(1002))
    log.set("eval_accuracy", 2.6901, -1)
    log.metadata("run_stop", status="aborted")
    (package / "results" / SYSTEM / "gpt3" / "result_1.txt").write_text(as_text(log.records))
    slow = Log(records(1003))
    slow.shift(slow.place("run_stop"), 60_000)
    (package / "results" / SYSTEM / "gpt3" / "result_2.txt").write_text(as_text(slow.records))
    (subject,) = review([package], "4.1.0").subjects
    outcomes = {check.tool: check.outcome for check in subject.checks if check.tool != "compliance"}
    assert outcomes["package"] == outcomes["summarizer"] == "passed"
    (score,) = subject.scores
    assert score.measured_minutes == max(run.minutes or 0 for run in (score.runs[0], score.runs[2]))
    assert not subject.passed


def test_scratch_paths_are_told_by_their_real_names(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    log = Log(records(1002))
    log.without("opt_name")
    path = package / "results" / SYSTEM / "gpt3" / "result_1.txt"
    path.write_text(as_text(log.records))
    (subject,) = review([path], "4.1.0").subjects
    (check,) = subject.checks
    assert (check.outcome, check.subject) == ("failed", str(path))
    assert "Required EXACTLY_ONE occurrence of 'opt_name' but found 0" in " ".join(check.complaints)
    assert "review-" not in " ".join(check.complaints)
    assert ORG in check.subject
