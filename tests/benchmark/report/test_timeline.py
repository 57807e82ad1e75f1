"""Where the time goes: runs whose every second is known."""

from pathlib import Path

import pytest

from benchmark.report.timeline import timeline
from benchmark.results.recorded_run import read_recorded_run
from tests.benchmark.report.runs import restarted_run, write_run


def test_run_without_restart_adds_up_to_its_length(tmp_path: Path) -> None:
    run = read_recorded_run(write_run(tmp_path / "run"))
    times = timeline(run)
    assert {part: seconds for part, seconds in times.seconds.items() if seconds} == {
        "init": 2.0,
        "productive": 6.0,
        "evaluation": 4.5,
        "checkpoint": 0.5,
    }
    assert run.summary.run_ms == 11_000
    assert times.total == pytest.approx(13.0)
    assert (len(times.evaluations), len(times.checkpoints)) == (3, 2)
    assert times.ledger is not None


def test_restart_makes_steps_lost_and_time_unknown(tmp_path: Path) -> None:
    run = read_recorded_run(restarted_run(tmp_path / "run"))
    times = timeline(run)
    assert times.total == pytest.approx(2 + 39.45)
    assert run.summary.run_ms == pytest.approx(39_450)
    assert (times.seconds["lost"], times.seconds["unknown"]) == (1.2, 30.0)
    assert len(times.restarts) == 1


def test_log_alone_tells_init_evaluations_and_the_rest(tmp_path: Path) -> None:
    log = write_run(tmp_path / "run") / "result_0.txt"
    log = log.rename(tmp_path / "result_0.txt")
    times = timeline(read_recorded_run(log))
    assert times.seconds == pytest.approx({"init": 2.0, "productive": 6.5, "evaluation": 4.5})
    assert times.ledger is None
