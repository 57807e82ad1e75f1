"""Where the time goes: runs whose every second is known."""

from pathlib import Path

import pytest

from benchmark.report.timeline import timeline
from benchmark.results.recorded_run import read_recorded_run
from tests.benchmark.report.runs import restarted_run, write_run


def test_run_without_restart_adds_up_to_its_length(tmp_path: Path) -> None:
    run = read_recorded_run(write_run(tmp_path / "run"))
    times = timeline(run)
    expected = {
        "init": 2.0,
        "train": 6.0,
        "evaluate": 4.5,
        "checkpoint": 0.5,
        "lost": 0.0,
        "waiting": 0.0,
        "other": 0.0,
    }
    assert times.seconds == pytest.approx(expected)
    assert run.summary.run_ms == 11_000
    assert times.total == pytest.approx(13.0)
    assert (len(times.evaluations), len(times.checkpoints), times.merged) == (3, 2, False)


def test_restart_makes_steps_lost_and_time_waited(tmp_path: Path) -> None:
    run = read_recorded_run(restarted_run(tmp_path / "run"))
    times = timeline(run)
    expected = {"init": 2, "train": 4, "evaluate": 3, "checkpoint": 0.25, "lost": 1.2, "waiting": 30, "other": 1}
    assert times.seconds == pytest.approx(expected)
    assert run.summary.run_ms == pytest.approx(39_450)
    assert len(times.restarts) == 1


def test_log_alone_tells_init_evaluations_and_the_rest(tmp_path: Path) -> None:
    log = write_run(tmp_path / "run") / "result_0.txt"
    log = log.rename(tmp_path / "result_0.txt")
    times = timeline(read_recorded_run(log))
    assert times.seconds == pytest.approx({"init": 2.0, "train": 6.5, "evaluate": 4.5})
    assert times.merged
