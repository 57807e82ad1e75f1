"""The official checkers on results and packages: which run, on what, and what they say."""

import json
from pathlib import Path

import pytest

from benchmark.judging.results.convergence import ReferenceChoice
from benchmark.judging.results.subjects import ResultSet, find_subjects
from benchmark.judging.review.official.official_checkers import RCP, inapplicable, run_tasks
from benchmark.judging.review.official.seed_check import main as check_seeds
from benchmark.judging.review.official.tool_process import tool_process
from benchmark.judging.review.official.tool_verdicts import run_task
from benchmark.judging.review.verdict import review
from tests.benchmark.judging.review.fixture import (
    ORG,
    SEEDS,
    SYSTEM,
    Log,
    T,
    as_text,
    records,
    write_package,
    write_run,
)

TOOLS_OF_A_PACKAGE = ["package", "repository", "summarizer"]


def with_code(package: Path) -> Path:
    """Give a package a name like a module's, and code: nothing of it may be imported."""
    named = package.rename(package.with_name("yaml"))
    (named / "__init__.py").write_text("raise SystemExit('imported')")
    (named / "results" / "json.py").write_text("raise SystemExit('imported')")
    return named


def with_pattern(package: Path) -> Path:
    """Give a system a name that official tools take for a pattern."""
    (package / "results" / SYSTEM).rename(package / "results" / f"{SYSTEM}[1]")
    (package / "systems" / f"{SYSTEM}.json").rename(package / "systems" / f"{SYSTEM}[1].json")
    return package


def with_aborted_runs(package: Path, numbers: tuple[int, ...]) -> Path:
    """Let some of the runs be aborted, and the last stop a minute late."""
    for number in (*numbers, 2):
        log = Log(records(SEEDS[number]))
        if number in numbers:
            log.set("eval_accuracy", 2.6901, -1)
            log.metadata("run_stop", status="aborted")
        else:
            log.shift(log.place("run_stop"), 60_000)
        (package / "results" / SYSTEM / "gpt3" / f"result_{number}.txt").write_text(as_text(log.records))
    return package


@pytest.mark.slow
def test_every_tool_runs_on_packages_and_says_which_part_of_one_fails(tmp_path: Path) -> None:
    """Review four packages at once; one, of round 3.0, has a name that is a pattern; two have aborted runs.

    The package checker accepts one aborted run of three, and the score is then the slower of the others.
    """
    older, newer = tmp_path / "training_results_v3.0", tmp_path / "v4.1"
    code = with_code(write_package(newer))
    one_aborted = with_aborted_runs(write_package(newer).rename(newer / "ONE"), (1,))
    two_aborted = with_aborted_runs(write_package(newer).rename(newer / "TWO"), (1, 2))
    pattern = with_pattern(write_package(older))
    before = sorted(tmp_path.rglob("*"))
    found = {subject.path: subject for subject in review([pattern, code, one_aborted, two_aborted]).subjects}
    assert sorted(tmp_path.rglob("*")) == before
    for package in (pattern, code, one_aborted):
        subject = found[str(package)]
        assert sorted(check.tool for check in subject.checks) == TOOLS_OF_A_PACKAGE
        assert all(check.passed for check in subject.checks), subject.checks
        assert subject.declined == {}
    (found_in_pattern, found_in_code, of_one, of_two) = found.values()
    assert (found_in_pattern.ruleset, found_in_code.ruleset) == ("3.0.0", "4.1.0")
    assert {one.rule for one in found_in_pattern.of("error")} == {"package.files"}
    assert any(f"{SYSTEM}[1]" in note for check in found_in_pattern.checks for note in check.notes)
    (score,) = of_one.scores
    assert score.measured_minutes == max(run.minutes or 0 for run in (score.runs[0], score.runs[2]))
    outcomes = [(check.tool, check.outcome) for check in of_two.checks]
    assert outcomes[:3] == [("compliance", "passed"), ("compliance", "failed"), ("compliance", "failed")]
    assert ("package", "failed") in outcomes and ("system description", "passed") in outcomes


def test_tools_without_anything_to_check_say_why(tmp_path: Path) -> None:
    one = ResultSet("run", "4.1.0", [write_run(tmp_path, records(1))], tmp_path)
    assert inapplicable(one) == {
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
    assert inapplicable(opened)[RCP.name] == "the open division has no such rule"
    log.set("submission_benchmark", "gpt3_rehearsal")
    log.set("submission_division", "closed")
    rehearsed = ResultSet("run", "4.1.0", [write_run(tmp_path / "rehearsal", log.records)] * 3, tmp_path)
    assert inapplicable(rehearsed)[RCP.name] == "the benchmark is not an official one"


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
    for references, passed, why in (
        (ReferenceChoice(), True, "2048"),
        (ReferenceChoice(pruned=False), True, "reference point at batch size 1536"),
        (ReferenceChoice(points), False, ""),
    ):
        (one,) = find_subjects([results], "4.1.0", references)
        assert isinstance(one, ResultSet)
        (rcp,) = [task for task in run_tasks(one, tmp_path / f"{why}.scratch") if task.tool == RCP]
        with tool_process() as tools:
            assert run_task(rcp, tools).passed == one.convergence.standing.startswith("passes") == passed
        assert why in one.convergence.why


def test_seed_checker_passes_different_seeds_and_fails_equal_ones(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, again = (str(write_run(tmp_path / str(n), records(s))) for n, s in enumerate((1, 2, 1)))
    assert check_seeds(["4.1.0", first, second]) == 0
    assert "SEED CHECKER PASSED on 2 files\n" in capfd.readouterr().out
    assert check_seeds(["4.1.0", first, again]) == 1
    assert "SEED CHECKER FAILED on 2 files\n" in capfd.readouterr().out
    assert check_seeds(["4.1.0"]) == 1
