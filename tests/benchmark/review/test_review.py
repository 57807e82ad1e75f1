"""The command, and what it says of runs of ours."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.config.benchmarks import GPT3_175B, REHEARSAL
from benchmark.results.mllog import MOST_BYTES, parse_log, read_log
from benchmark.results.run_summary import summarize
from benchmark.results.subjects import ResultSet, SubmissionPackage, find_subjects, ruleset_for
from benchmark.review.findings import Finding
from benchmark.review.verdict import own_findings
from stage.errors import InputError
from tests.benchmark.events.written_log import write_log
from tests.benchmark.review.damage import Log, T
from tests.benchmark.review.fixture import SYSTEM, as_text, records, write_package
from tests.support import assert_refused, command

CURVE = [2.751, 2.728, 2.716, 2.708, 2.701, 2.69]


def of_run(path: Path) -> list[Finding]:
    return list(own_findings(ResultSet("run", "4.1.0", [path], path.parent)))


def write_run(folder: Path, run: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result_0.txt"
    path.write_text(as_text(run))
    return path


@pytest.mark.parametrize("size", [1536, 2048, 3072])
def test_run_of_ours_has_no_finding(size: int, tmp_path: Path) -> None:
    write_log(tmp_path, dataclasses.replace(GPT3_175B, global_batch_size=size), CURVE)
    assert of_run(tmp_path / "result_0.txt") == []


def test_run_of_ours_at_another_batch_size_has_the_learning_rate_of_it(tmp_path: Path) -> None:
    write_log(tmp_path, dataclasses.replace(GPT3_175B, global_batch_size=4096), CURVE)
    assert [finding.rule for finding in of_run(tmp_path / "result_0.txt")] == ["schedule.base_rate"]


def test_rehearsals_have_no_finding_and_are_tested_against_their_own_points(tmp_path: Path) -> None:
    paths = []
    for number, evaluations in enumerate((13, 13, 14)):
        values = [5.6 - place * 3.16 / evaluations + number * 1e-4 for place in range(evaluations)] + [2.42]
        write_log(tmp_path / str(number), REHEARSAL, values[1:])
        paths.append(tmp_path / str(number) / "result_0.txt")
    (subject,) = find_subjects(paths, None)
    assert isinstance(subject, ResultSet)
    assert subject.convergence.standing in ("passes", "passes, scaled")
    assert subject.convergence.batch_size == 16
    assert {finding.severity for finding in own_findings(subject)} <= {"note"}


def test_continued_run_is_one_run_whose_clock_ran_on(tmp_path: Path) -> None:
    log = Log(records(1))
    place = log.place("block_stop", 6)
    before = log.records[place - 1]["time_ms"]
    restart = log.copied(place, key="restart", value=1, event_type="POINT_IN_TIME", time_ms=before + 1_200_000)
    restart["metadata"]["step"] = 6 * T
    log.records.insert(place, restart)
    log.shift(place + 1, 1_200_000)
    path = write_run(tmp_path, log.records)
    assert [(finding.rule, finding.severity, finding.line) for finding in of_run(path)] == [
        ("restart.logged", "warning", place + 1)
    ]
    whole, continued = (summarize(parse_log(path, as_text(run).encode())) for run in (records(1), log.records))
    assert (continued.minutes or 0) - (whole.minutes or 0) == pytest.approx(20)
    assert [(one.number, one.tokens) for one in continued.restarts] == [(1, 6 * T)]


def test_stall_that_nobody_logged_is_a_warning(tmp_path: Path) -> None:
    log = Log(records(1))
    log.shift(log.place("block_stop", 6), 1_200_000)
    path = write_run(tmp_path, log.records)
    assert [finding.rule for finding in of_run(path)] == ["clock.slow_block"]


def test_summary_of_a_run(tmp_path: Path) -> None:
    run = summarize(read_log(write_run(tmp_path, records(7))))
    assert (run.benchmark, run.org, run.platform, run.division) == ("gpt3", "ACME", "ACME-H100-n64", "closed")
    assert (run.seeds, run.global_batch_size, run.sequence_length) == ([7], 2048, 2048)
    assert (run.trained_tokens, run.trained_samples) == (24 * T, 24 * 24576)
    assert (len(run.evaluations), run.status, run.target) == (24, "success", 2.69)
    assert run.reached == run.evaluations[-1]
    assert run.evaluations[0].seconds == pytest.approx(10, abs=0.01)
    assert run.minutes == pytest.approx(24 * 130 / 60, abs=0.01)
    assert run.init_s == pytest.approx(200, abs=0.1)
    assert run.tokens_per_s == pytest.approx(24 * T / (24 * 130), rel=1e-4)


def test_first_run_stop_counts_as_in_the_official_summarizer() -> None:
    log = Log(records(1))
    place = log.place("run_stop")
    log.records.append(log.copied(place, time_ms=log.records[place]["time_ms"] + 600_000))
    runs = [summarize(parse_log(Path("x"), as_text(run).encode())) for run in (records(1), log.records)]
    assert runs[0].minutes == runs[1].minutes


def test_command_passes_a_run_and_names_what_is_wrong_with_another(tmp_path: Path) -> None:
    write_log(tmp_path / "good")
    write_log(tmp_path / "bad", values=[2.751, 2.74, 2.73, 2.72, 2.71], error_at_step=70)
    output = tmp_path / "review.json"
    both = command("benchmark", "review", tmp_path / "good" / "result_0.txt", tmp_path / "bad", "--json", output)
    assert both.returncode == 1, both.stderr
    lines = both.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("PASS", "FAIL"))] == ["FAIL"]
    assert lines[0].startswith("FAIL")
    assert "Failed checks for eval_accuracy" in both.stdout
    assert "bad/result_0.txt" in both.stdout
    assert "2 runs, ruleset 4.1.0" in lines[0]
    content = json.loads(output.read_text())
    assert (content["format"], content["passed"]) == (1, False)
    (subject,) = content["subjects"]
    assert [check["outcome"] for check in subject["official"] if check["tool"] == "compliance"] == ["passed", "failed"]
    error = next(finding for finding in subject["findings"] if finding["rule"] == "eval.target")
    assert error["path"].endswith("bad/result_0.txt")
    assert error["line"] > 0
    assert error["mend"]
    good = command("benchmark", "review", tmp_path / "good")
    assert (good.returncode, good.stdout.split()[0]) == (0, "PASS")
    assert "no score: a score takes 3 runs, there is 1" in good.stdout


def test_two_results_side_by_side(tmp_path: Path) -> None:
    a = write_package(tmp_path / "a")
    b = write_package(tmp_path / "b", lambda seed: records(seed, batch_size=1536, evaluations=25))
    output = tmp_path / "review.json"
    results = Path("results", SYSTEM, "gpt3")
    done = command("benchmark", "review", "--compare", a / results, b / results, "--json", output)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = [line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
    assert [line.split()[0] for line in verdicts] == ["PASS", "PASS", "PASS"]
    assert verdicts[0].startswith("PASS  2 of 2 pass")
    content = json.loads(output.read_text())
    rows = {row["name"]: (row["a"], row["b"], row["ratio"]) for row in content["comparison"]}
    assert rows["evaluations"] == ("24", "25", "1.042")
    assert rows["batch size"] == ("2,048", "1,536", "0.750")
    assert rows["accelerators"] == ("512", "512", "1.000")
    (result,) = content["subjects"][0]["results"]
    assert result["minutes"] == pytest.approx(52, abs=0.01)
    assert result["convergence"]["standing"] == "passes"
    assert result["mfu"] == pytest.approx(result["tflops_per_accelerator"] / 989.4)


def test_input_that_cannot_be_reviewed_is_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", records(1))
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, complaint in (
        ([empty], "empty: no result_*.txt there"),
        ([tmp_path / "nowhere"], "nowhere: no such file or folder"),
        ([path, "--ruleset", "5.0.0"], "gpt3 is in 3.0.0, 3.1.0, 4.0.0, 4.1.0 only"),
        ([], "nothing to review"),
    ):
        assert_refused(command("benchmark", "review", *arguments), complaint)


def test_empty_package_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "ACME" / "results").mkdir(parents=True)
    (tmp_path / "ACME" / "systems").mkdir()
    done = command("benchmark", "review", tmp_path / "ACME")
    assert (done.returncode, done.stdout.split()[0]) == (1, "FAIL")
    assert "no gpt3 results" in done.stdout


def test_ruleset_is_found_in_the_path() -> None:
    assert ruleset_for(Path("/x/v3.1/Google/results"), None) == "3.1.0"
    assert ruleset_for(Path("/x/training_results_v4.0/Google"), None) == "4.0.0"
    assert ruleset_for(Path("/x/run"), None) == "4.1.0"
    assert ruleset_for(Path("/x/v3.1/Google"), "4.0.0") == "4.0.0"
    with pytest.raises(InputError, match=r"--ruleset 5\.0\.0: gpt3 is in"):
        ruleset_for(Path("/x/v5.0/Google"), None)


def test_runs_of_several_folders_are_one_result(tmp_path: Path) -> None:
    for number in range(3):
        write_run(tmp_path / f"run_{number}", records(number))
    write_run(tmp_path / "run_3", records(4, batch_size=1536))
    subjects = find_subjects([tmp_path], None)
    assert [len(one.files) for one in subjects if isinstance(one, ResultSet)] == [3, 1]


def test_folder_of_packages_is_each_of_them(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    package.rename(tmp_path / "OTHER")
    write_package(tmp_path)
    subjects = find_subjects([tmp_path], None)
    assert [one.path.name for one in subjects if isinstance(one, SubmissionPackage)] == ["ACME", "OTHER"]


def test_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    log = read_log(path)
    assert (log.events, log.num_lines) == ((), 0)
    assert [finding.rule for finding in of_run(path)] == ["record.readable"]


def test_control_characters_of_a_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    log = Log(records(1))
    log.set("submission_benchmark", "\x1b[31mgpt3[bold]\x07")
    done = command("benchmark", "review", write_run(tmp_path, log.records))
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.binary(max_size=40))
def test_no_file_makes_the_rules_stop(seed: int, noise: bytes) -> None:
    """Values of any JSON type at any place, bytes anywhere, lines lost and swapped."""
    choose = random.Random(seed)
    values: list[Any] = [None, True, -1, 0, 1e308, 10**400, "", "x", [], {}, {"a": 1}, [1, "2"], float("nan"), 2**63]
    run = records(1, evaluations=5)
    for _ in range(choose.randrange(1, 8)):
        record = choose.choice(run)
        match choose.randrange(4):
            case 0:
                record["value"] = choose.choice(values)
            case 1 if isinstance(record["metadata"], dict):
                record["metadata"][choose.choice(["epoch_num", "first_epoch_num", "epoch_count", "status", "file"])] = (
                    choose.choice(values)
                )
            case 2:
                record[choose.choice(["time_ms", "key", "event_type", "metadata"])] = choose.choice(values)
            case 3:
                run.insert(choose.randrange(len(run)), run.pop(choose.randrange(len(run))))
    content = bytearray(as_text(run).encode())
    place = choose.randrange(len(content))
    content[place : place + choose.randrange(50)] = noise
    summary = summarize(parse_log(Path("x"), bytes(content)))
    one = ResultSet("x", "4.1.0", [], None)
    one.__dict__["runs"] = (summary, summary, summarize(parse_log(Path("y"), as_text(run).encode())))
    for finding in own_findings(one):
        assert finding.found
        assert finding.mend


def test_system_description_beside_the_results_tells_the_accelerators(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (one,) = find_subjects([package / "results" / SYSTEM / "gpt3"], None)
    assert isinstance(one, ResultSet)
    assert one.system is not None
    assert one.system.accelerators == 512
