"""A review as people read it, as JSON, and as a command."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmark.judging.review.review_json import null_for_nan, review_as_json
from benchmark.judging.review.review_screen import print_review, print_verdicts, review_and_print
from benchmark.judging.review.verdict import Review
from foundation.errors import InputError
from foundation.plain_text import PAGE_COLUMNS
from tests.benchmark.judging.review.fixture import SEEDS, SYSTEM, Log, as_text, records, write_package, write_run
from tests.benchmark.judging.review.reviews import review_of, verdict
from tests.house.json_schemas import assert_described
from tests.support import assert_refused, command


def printed(review: Review) -> list[str]:
    out = Console(width=PAGE_COLUMNS, highlight=False)
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
    rows = [(line.split(), figures.split()) for line, figures in pairwise(lines) if line.startswith("  result_")]
    assert [row[3:] + figures[:3] for row, figures in rows] == [["success", "52.00", "1,207,959,552", "24"]] * 3


@pytest.mark.parametrize(("disclosed", "speed_format"), [("fp8", " in FP8"), ("bfloat16", "")])
def test_another_format_than_bf16_is_named_without_a_peak_too(
    disclosed: str, speed_format: str, tmp_path: Path
) -> None:
    log = Log(records(1))
    log.set("lowest_numerical_precision_in_linear", disclosed)
    result = write_run(tmp_path / "run", log.records)
    system = {"device": "cpu", "nodes": 1, "devices_per_node": 2}
    (tmp_path / "run" / "config.json").write_text(json.dumps({"result_number": 0, "system": system}))
    (line,) = (line for line in printed(review_of([result], verdict())) if "TFLOP/s each" in line)
    assert (line.startswith("  2 x cpu: "), line.partition("each")[2]) == (True, speed_format), line


def test_what_is_wrong_is_told_once_with_place_mend_and_source(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    results = package / "results" / SYSTEM / "gpt3"
    for number in range(3):
        log = Log(records(SEEDS[number]))
        log.set("opt_name", "adamw")
        (results / f"result_{number}.txt").write_text(as_text(log.records))
    lines = printed(review_of([results], verdict("it is wrong")))
    assert lines[:2] == [f"REJECTED  {results}", "  3 runs, ruleset 4.1.0: 1 error"]
    error, rest = lines[2:12], lines[7:]
    assert (
        error[0] == "  error    result_0.txt:14, result_1.txt:14, result_2.txt:14: opt_name 'adamw'; expected: 'adam'"
    )
    assert error[1].startswith('           line: :::MLLOG {"namespace": "", "time_ms": ')
    assert '"value": "adamw", "metadata": ' in error[2]
    assert any(
        line.startswith("           fix: train with it, and log the configured number as it is") for line in error
    )
    assert any(line.startswith("           rule: value.fixed: mlcommons/training_policies") for line in error)
    assert "docs/facts/mlperf_review.md 3.2" in " ".join(error[4:])
    assert "  failed: compliance, /x/result_0.txt" in rest
    assert all(len(line) <= PAGE_COLUMNS for line in lines[1:])


def test_in_brief_a_result_is_a_line_and_an_error_is_one(tmp_path: Path) -> None:
    log = Log(records(1))
    log.set("opt_name", "adamw")
    good, bad = write_run(tmp_path / "good", records(2)), write_run(tmp_path / "bad", log.records)
    lines = []
    for path, outcome in ((good, verdict()), (bad, verdict("it is wrong"))):
        out = Console(width=PAGE_COLUMNS, highlight=False)
        with out.capture() as captured:
            print_verdicts(review_of([path], outcome), out)
        lines.append(captured.get().splitlines())
    assert lines[0] == [f"ACCEPTABLE  {good}"]
    assert lines[1][0].startswith(f"REJECTED  {bad}: 1 error")
    assert lines[1][1].startswith("  failed: compliance, ") and lines[1][1].endswith("it is wrong")
    assert lines[1][2].endswith(": opt_name 'adamw'; expected: 'adam'")


def test_only_the_first_findings_of_a_rule_are_shown(tmp_path: Path) -> None:
    log = Log(records(1))
    for number in range(9):
        log.set("eval_accuracy", "2.7", number)
    lines = printed(review_of([write_run(tmp_path, log.records)]))
    assert sum("rule: eval.value: " in line for line in lines) == 1
    assert any(line.startswith("  error    result_0.txt:") for line in lines)
    assert " and 4 more: " in " ".join(" ".join(lines).split())
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


def test_json_of_three_runs(tmp_path: Path) -> None:
    results = write_package(tmp_path) / "results" / SYSTEM / "gpt3"
    content = json.loads(json.dumps(review_as_json(review_of([results]))))
    assert_described("review", content)
    assert (content["format"], content["passed"], content["seconds"]) == (3, True, 1.25)
    assert content["verdict"] == "acceptable"
    (subject,) = content["subjects"]
    assert (subject["kind"], subject["path"], subject["ruleset"]) == ("runs", str(results), "4.1.0")
    assert subject["counts"] == {"error": 0, "warning": 0, "note": 0}
    assert subject["not_applicable"] == ["system description", "package", "repository", "summarizer"]
    assert subject["official"][0]["outcome"] == "passed"
    (result,) = subject["results"]
    assert result["minutes"] == pytest.approx(52, abs=0.01)
    assert result["mfu"] == pytest.approx(result["tflops_per_accelerator"] / 989.4)
    convergence = result["convergence"]
    assert (convergence["standing"], convergence["batch_size"], convergence["factor"]) == ("passes", 2048, 1)
    assert convergence["compared_with"]["batch_size"] == 2048
    assert len(convergence["reference_points"]) == 6
    assert convergence["standing_without_void"] is None


def test_what_is_no_number_is_null() -> None:
    assert null_for_nan({"a": [math.nan, (1.5, math.inf)], "b": "nan"}) == {"a": [None, [1.5, None]], "b": "nan"}


def test_json_of_findings_and_failed_tools(tmp_path: Path) -> None:
    results = write_package(tmp_path, lambda seed: records(seed, evaluations=22)) / "results" / SYSTEM / "gpt3"
    content: Any = review_as_json(review_of([results], verdict("it is wrong")))
    assert_described("review", content)
    (subject,) = content["subjects"]
    assert (content["passed"], subject["passed"], subject["counts"]["error"]) == (False, False, 1)
    assert subject["official"][0]["complaints"] == ["it is wrong"]
    (finding,) = subject["findings"]
    assert set(finding) == {
        "rule",
        "severity",
        "source",
        "path",
        "line",
        "found",
        "due",
        "mend",
        "text",
        "question",
        "rules",
        "also",
    }
    assert subject["verdict"] == "rejected"
    assert finding["rule"] == "rcp.test"
    assert finding["path"] in ("result_0.txt", "result_1.txt", "result_2.txt")
    assert finding["text"].startswith(':::MLLOG {"namespace": ""')
    assert finding["question"] == ""
    assert finding["source"] == "docs/facts/mlperf_review.md 5.4, 5.6, 5.10; convergence test"


@pytest.mark.slow
def test_command_passes_a_run_and_names_what_is_wrong_with_another(tmp_path: Path) -> None:
    write_run(tmp_path / "good", records(1))
    log = Log(records(2))
    log.set("eval_accuracy", 2.6901, -1)
    log.metadata("run_stop", status="aborted")
    write_run(tmp_path / "bad", log.records)
    output = tmp_path / "review.json"
    both = command("benchmark", "review", tmp_path / "good" / "result_0.txt", tmp_path / "bad", "--json", output)
    assert both.returncode == 1, both.stderr
    lines = both.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("ACCEPTABLE", "REJECTED"))] == ["REJECTED"]
    assert lines[0].startswith("REJECTED")
    assert "Failed checks for eval_accuracy" in both.stdout
    assert "bad/result_0.txt" in both.stdout
    assert "  2 runs, ruleset 4.1.0: " in both.stdout
    content = json.loads(output.read_text())
    assert (content["format"], content["passed"]) == (3, False)
    (subject,) = content["subjects"]
    outcomes = [(check["tool"], check["outcome"]) for check in subject["official"]]
    assert outcomes == [("compliance", "passed"), ("compliance", "failed"), ("seed", "passed")]
    error = next(finding for finding in subject["findings"] if finding["rule"] == "runs.failed")
    assert error["path"].endswith("bad/result_0.txt")
    assert error["line"] > 0
    assert error["mend"]


def test_input_that_cannot_be_reviewed_is_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", records(1))
    empty = tmp_path / "empty"
    empty.mkdir()
    done = command("benchmark", "review", path, "--ruleset", "5.0.0")
    assert_refused(done, "gpt3 is in 3.0.0, 3.1.0, 4.0.0, 4.1.0 only")
    for paths, complaint in (
        ([empty], r"empty: no result_\*\.txt there"),
        ([tmp_path / "nowhere"], "nowhere: no such file or folder"),
        ([], "nothing to review"),
    ):
        with pytest.raises(InputError, match=complaint):
            review_and_print(paths)
