"""``review`` as a user calls it: exit status, verdicts, JSON."""

import json
from pathlib import Path

import pytest

from benchmark.review.review_screen import review_and_print
from stage.errors import InputError
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records, write_run
from tests.support import assert_refused, command

VERDICTS = ("ACCEPTABLE", "REJECTED")


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
    assert [line.split()[0] for line in lines if line.startswith(VERDICTS)] == ["REJECTED"]
    assert lines[0].startswith("REJECTED")
    assert "Failed checks for eval_accuracy" in both.stdout
    assert "bad/result_0.txt" in both.stdout
    assert "  2 runs, ruleset 4.1.0: " in both.stdout
    content = json.loads(output.read_text())
    assert (content["format"], content["passed"]) == (3, False)
    (subject,) = content["subjects"]
    assert [check["outcome"] for check in subject["official"] if check["tool"] == "compliance"] == ["passed", "failed"]
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


@pytest.mark.slow
def test_empty_package_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "ACME" / "results").mkdir(parents=True)
    (tmp_path / "ACME" / "systems").mkdir()
    done = command("benchmark", "review", tmp_path / "ACME")
    assert (done.returncode, done.stdout.split()[0]) == (1, "REJECTED")
    assert "no gpt3 results" in done.stdout
