"""The official checkers on results and packages: which run, on what, and what they say."""

import json
from pathlib import Path

import pytest

from benchmark.results.convergence import ReferenceChoice
from benchmark.results.subjects import ResultSet
from benchmark.review.official_checkers import RCP, declined
from benchmark.review.verdict import review
from tests.benchmark.review.damage import Log, T
from tests.benchmark.review.fixture import ORG, SEEDS, SYSTEM, as_text, records, write_package, write_run

TOOLS_OF_A_PACKAGE = ["package", "repository", "summarizer"]


def with_code(package: Path) -> Path:
    """A submitter's folder may be named like a module, and hold code."""
    named = package.rename(package.with_name("yaml"))
    (named / "__init__.py").write_text("raise SystemExit('imported')")
    (named / "results" / "json.py").write_text("raise SystemExit('imported')")
    return named


@pytest.mark.slow
@pytest.mark.parametrize("ruleset", ["3.0.0", "4.1.0"])
def test_every_tool_runs_on_a_package_and_nothing_in_it_is_imported(ruleset: str, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    if ruleset == "4.1.0":  # as it is, tests/benchmark/submission/test_package.py has one reviewed
        package = with_code(package)
    before = sorted(path.relative_to(package) for path in package.rglob("*"))
    (subject,) = review([package], ruleset).subjects
    assert subject.passed, subject
    assert sorted(check.tool for check in subject.checks) == TOOLS_OF_A_PACKAGE
    assert subject.declined == {}
    assert sorted(path.relative_to(package) for path in package.rglob("*")) == before


def test_tools_without_anything_to_check_say_why(tmp_path: Path) -> None:
    one = ResultSet("run", "4.1.0", [write_run(tmp_path, records(1))], tmp_path)
    assert declined(one) == {
        "seed": "for 2 runs or more",
        "RCP": "for 3 runs",
        "system description": "for submission folders",
        "package": "for submission folders",
        "repository": "for submission folders",
        "summarizer": "for submission folders",
    }
    log = Log(records(1))
    log.set("submission_division", "open")
    opened = ResultSet("run", "4.1.0", [write_run(tmp_path / "open", log.records)] * 3, tmp_path)
    assert declined(opened)[RCP] == "the open division has no such rule"
    log.set("submission_benchmark", "gpt3_rehearsal")
    log.set("submission_division", "closed")
    rehearsed = ResultSet("run", "4.1.0", [write_run(tmp_path / "rehearsal", log.records)] * 3, tmp_path)
    assert declined(rehearsed)[RCP] == "the benchmark is not an official one"


@pytest.mark.slow
def test_name_that_the_tools_take_for_a_pattern_is_replaced_for_them(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    name = f"{SYSTEM}[1]"
    (package / "results" / SYSTEM).rename(package / "results" / name)
    (package / "systems" / f"{SYSTEM}.json").rename(package / "systems" / f"{name}.json")
    (subject,) = review([package], "4.1.0").subjects
    assert all(check.passed for check in subject.checks), subject.checks
    assert [finding.rule for finding in subject.of("error")] == ["package.files", "package.files"]
    assert any(name in note for check in subject.checks for note in check.notes)


@pytest.mark.slow
def test_one_aborted_run_of_three_is_accepted_and_two_are_not(tmp_path: Path) -> None:
    """The package checker accepts it under olympic scoring; the score is then the slower of the others."""
    package = write_package(tmp_path)
    aborted = [Log(records(seed)) for seed in SEEDS]
    for log in aborted:
        log.set("eval_accuracy", 2.6901, -1)
        log.metadata("run_stop", status="aborted")
    (package / "results" / SYSTEM / "gpt3" / "result_1.txt").write_text(as_text(aborted[1].records))
    slow = Log(records(SEEDS[2]))
    slow.shift(slow.place("run_stop"), 60_000)
    (package / "results" / SYSTEM / "gpt3" / "result_2.txt").write_text(as_text(slow.records))
    (subject,) = review([package], "4.1.0").subjects
    outcomes = {check.tool: check.outcome for check in subject.checks if check.tool != "compliance"}
    assert outcomes["package"] == outcomes["summarizer"] == "passed"
    (score,) = subject.scores
    assert score.measured_minutes == max(run.minutes or 0 for run in (score.runs[0], score.runs[2]))
    assert subject.passed
    (package / "results" / SYSTEM / "gpt3" / "result_2.txt").write_text(as_text(aborted[2].records))
    (subject,) = review([package], "4.1.0").subjects
    assert not subject.passed


def test_scratch_paths_are_told_by_their_real_names(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    log = Log(records(SEEDS[1]))
    log.without("opt_name")
    path = package / "results" / SYSTEM / "gpt3" / "result_1.txt"
    path.write_text(as_text(log.records))
    (subject,) = review([path], "4.1.0").subjects
    (check,) = subject.checks
    assert (check.outcome, check.subject) == ("failed", str(path))
    assert "Required EXACTLY_ONE occurrence of 'opt_name' but found 0" in " ".join(check.complaints)
    assert "review-" not in " ".join(check.complaints)
    assert ORG in check.subject


@pytest.mark.slow
def test_options_of_the_official_tools(tmp_path: Path) -> None:
    """The point at 1536 counts only unpruned."""
    results = write_package(tmp_path, lambda seed: records(seed, batch_size=1536)) / "results" / SYSTEM / "gpt3"
    points = tmp_path / "points.json"
    points.write_text(
        json.dumps({"a": {"Benchmark": "gpt3", "BS": 1536, "Epochs to converge": [40 * T, 40 * T, 41 * T, 41 * T]}})
    )
    outcomes = {}
    for name, references in (
        ("usual", ReferenceChoice()),
        ("full", ReferenceChoice(pruned=False)),
        ("custom", ReferenceChoice(points)),
    ):
        (subject,) = review([results], "4.1.0", references).subjects
        (rcp,) = [check.passed for check in subject.checks if check.tool == "RCP"]
        outcomes[name] = (rcp, subject.sets[0].convergence.standing, subject.sets[0].convergence.why)
    assert outcomes["usual"][:2] == (True, "passes")
    assert outcomes["full"][::2] == (True, "reference point at batch size 1536")
    assert outcomes["custom"][:2] == (False, "fails")
