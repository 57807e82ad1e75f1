"""Attempts follow each other until the run has ended or is given up."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmark.supervision.attempt_folder import all_attempts, attempt_path, read_end
from benchmark.supervision.incidents import own_incident, write_incident
from benchmark.supervision.launcher import keep_running


def test_run_is_started_again_until_it_has_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    environments: list[dict[str, str]] = []

    def start(environment: Mapping[str, str], log: Path) -> int:
        environments.append(dict(environment))
        if len(environments) == 3:
            (tmp_path / "summary.json").write_text(json.dumps({"status": "success"}))
            return 0
        folder = attempt_path(tmp_path, environment["ATTEMPT"])
        write_incident(folder, own_incident(1, "n1", "killed", steps=4, phase="data", message="gone"))
        return 1

    decision = keep_running(tmp_path, start, lambda: len(environments), launch="here")
    assert (decision.action, decision.status) == ("done", 0)
    assert [environment["ATTEMPT"] for environment in environments] == ["0001", "0002", "0003"]
    assert {environment["LAUNCH_ID"] for environment in environments} == {"here"}
    assert float(environments[0]["LAUNCHED_S"]) <= float(environments[2]["LAUNCHED_S"])
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2  # one for each incident
    assert lines[1].startswith("attempt 0002: rank 1 on ")
    assert lines[1].endswith("after step 4, in data: killed: gone; starting again from step 2 on")
    ends = [read_end(folder) for folder in all_attempts(tmp_path)]
    assert [end and end.action for end in ends] == ["again", "again", "done"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("benchmark.supervision.launcher.time.sleep", slept.append)
    return slept


def test_attempts_without_progress_come_at_longer_and_longer_intervals(tmp_path: Path, pauses: list[float]) -> None:
    saved = [0, 0, 8, 8, 8, 8, 8]
    starts = 0

    def start(environment: Mapping[str, str], log: Path) -> int:
        nonlocal starts
        starts += 1
        return 1

    keep_running(tmp_path, start, lambda: saved[starts], launch="here")
    assert pauses == [0.0, 0.0, 0.0, 1.0]  # the second attempt got to a checkpoint


def test_what_nobody_explains_is_shown_from_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], pauses: list[float]
) -> None:
    def start(environment: Mapping[str, str], log: Path) -> int:
        log.write_text("\n".join(f"line {number}" for number in range(50)))
        return 1

    decision = keep_running(tmp_path, start, lambda: None, launch="here")
    assert (decision.action, decision.status) == ("stop", 1)  # after no progress in several attempts
    lines = capfd.readouterr().err.splitlines()
    assert lines[:20] == [f"line {number}" for number in range(30, 50)]
    assert lines[-1].startswith("error: the processes ended with status 1 and left no word; no progress in 5 attempts")


def test_of_what_is_refused_only_the_line_that_says_so_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], pauses: list[float]
) -> None:
    def start(environment: Mapping[str, str], log: Path) -> int:
        log.write_text("error: seed -1: change --seed\nerror: seed -1: change --seed\nTraceback of the launcher\n")
        return 2

    decision = keep_running(tmp_path, start, lambda: None, launch="here")
    assert (decision.action, decision.status, len(all_attempts(tmp_path))) == ("stop", 2, 2)
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "seed" in line] == ["error: seed -1: change --seed"] * 2  # once of each attempt
    assert (lines[-1][:54], len(lines)) == ("error: the processes ended with status 2 and left no w", 4)
