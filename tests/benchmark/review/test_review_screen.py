"""A review as people read it."""

from pathlib import Path

from rich.console import Console

from benchmark.review.review_screen import NARROWEST, print_review
from benchmark.review.verdict import Review
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import SEEDS, SYSTEM, as_text, records, write_package, write_run
from tests.benchmark.review.reviews import review_of, verdict


def printed(review: Review) -> list[str]:
    out = Console(width=NARROWEST, highlight=False)
    with out.capture() as captured:
        print_review(review, out)
    return captured.get().splitlines()


def test_result_without_fault(tmp_path: Path) -> None:
    results = write_package(tmp_path) / "results" / SYSTEM / "gpt3"
    lines = printed(review_of([results], verdict(notes=("a note",))))
    assert lines[:2] == [f"ACCEPTABLE  {results}", "  3 runs, ruleset 4.1.0"]
    assert "  official checkers that ran and passed: compliance 1/1" in lines
    assert "  nothing to check for system description, package, repository, summarizer: for submission folders" in lines
    assert "  compliance: a note" in lines
    assert f"  {SYSTEM}, gpt3: 52.00 minutes" in lines
    assert any("512 x NVIDIA H100-SXM5-80GB: " in line and "of 989.4 (BF16, dense)" in line for line in lines)
    assert any(
        line.startswith("  convergence: passes: median 1,207,959,552 tokens; reference mean 1,177,760,563")
        for line in lines
    )
    rows = [line.split() for line in lines if line.startswith("  result_")]
    assert [row[2:6] for row in rows] == [["success", "52.00", "1,207,959,552", "24"]] * 3


def test_what_is_wrong_is_told_once_with_place_mend_and_source(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    results = package / "results" / SYSTEM / "gpt3"
    for number in range(3):
        log = Log(records(SEEDS[number]))
        log.set("opt_name", "adamw")
        (results / f"result_{number}.txt").write_text(as_text(log.records))
    lines = printed(review_of([results], verdict("it is wrong")))
    assert lines[:2] == [f"REJECTED  {results}", "  3 runs, ruleset 4.1.0: 1 error"]
    error, rest = lines[2:10], lines[7:]
    assert (
        error[0] == "  error    result_0.txt:14, result_1.txt:14, result_2.txt:14: opt_name 'adamw'; expected: 'adam'"
    )
    assert error[1].startswith('           line: :::MLLOG {"namespace": "", "time_ms": ')
    assert error[2].strip().startswith('"value": "adamw", "metadata": ')
    assert error[3].startswith("           fix: train with it, and log the configured number as it is")
    assert any(line.startswith("           rule: value.fixed: mlcommons/training_policies") for line in error)
    assert "docs/facts/mlperf_review.md 3.2" in " ".join(error[4:])
    assert "  failed: compliance, /x/result_0.txt" in rest
    assert all(len(line) <= NARROWEST for line in lines[1:])


def test_only_the_first_findings_of_a_rule_are_shown(tmp_path: Path) -> None:
    log = Log(records(1))
    for number in range(9):
        log.set("eval_accuracy", "2.7", number)
    lines = printed(review_of([write_run(tmp_path, log.records)]))
    assert sum("rule: eval.value: " in line for line in lines) == 1
    assert any(line.startswith("  error    result_0.txt:") and "and 4 more" in line for line in lines)
    assert any("no score: a score takes 3 runs, there is 1" in line for line in lines)
    assert "  convergence: not tested, 1 run: the test takes 3" in lines


def test_several_results_begin_with_a_leaderboard_and_the_reference_points(tmp_path: Path) -> None:
    slow = write_package(tmp_path / "a", lambda seed: records(seed, evaluations=26)) / "results" / SYSTEM / "gpt3"
    fast = write_package(tmp_path / "b") / "results" / SYSTEM / "gpt3"
    lines = [line.split() for line in printed(review_of([slow, fast])) if line]
    assert lines[0] == ["ACCEPTABLE", "of", "2", "results", "2", "acceptable,", "in", "1.2", "s"]
    assert lines[1] == ["rank", "benchmark", "system", "devices", "minutes", "verdict"]
    devices = ["512", "x", "NVIDIA", "H100-SXM5-80GB"]
    assert lines[2:4] == [[f"{n}", "gpt3", SYSTEM, *devices, m, "acceptable"] for n, m in ((1, "52.00"), (2, "56.33"))]
    assert lines[4] == ["reference", "points", "batch", "size", "mean", "least"]
    assert [line[:2] for line in lines[5:11]] == [["gpt3", "4.1.0"]] * 6
    paths = [write_run(tmp_path / str(size), records(1, batch_size=size)) for size in (1536, 2048)]
    assert printed(review_of(paths, verdict("no")))[0] == "REJECTED  of 2 results 2 rejected, in 1.2 s"


def test_control_characters_of_a_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    log = Log(records(1))
    log.set("submission_benchmark", "\x1b[31mgpt3[bold]\x07")
    text = "\n".join(printed(review_of([write_run(tmp_path, log.records)], verdict("\x1b[31mred"))))
    assert "[31mgpt3[bold]" in text
    assert "?[31mred" in text
    assert not {"\x1b", "\x07"} & set(text)
