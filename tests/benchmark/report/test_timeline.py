"""Where the time goes: runs whose every second is known."""

from pathlib import Path

import pytest

from benchmark.report.figures import figures, kept_steps
from benchmark.report.step_speed import Speed
from benchmark.report.timeline import timeline
from benchmark.results.recorded_run import read_recorded_run
from tests.benchmark.report.runs import MadeRun, write_run


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
    made = MadeRun(tmp_path / "run")
    made.begin()
    for _ in range(4):
        made.step()
    made.evaluate(5.5)
    made.save()
    for _ in range(3):
        made.step(seconds=0.4)  # lost: 1.2 s
    made.restart(steps=4, waiting=30.0)
    made.wait(1.0)  # nobody says what for
    for _ in range(4):
        made.step()
    made.evaluate(2.43)
    run = read_recorded_run(made.end())
    times = timeline(run)
    expected = {"init": 2, "train": 4, "evaluate": 3, "checkpoint": 0.25, "lost": 1.2, "waiting": 30, "other": 1}
    assert times.seconds == pytest.approx(expected)
    assert run.summary.run_ms == pytest.approx(39_450)
    assert len(times.restarts) == 1
    figure = next(one for one in figures([run], [times], [Speed(None, None)], None) if one.name == "step_time")
    restart = figure.lines[0].y.index(None)
    assert figure.lines[0].x[restart] == next(mark.x for mark in figure.marks if mark.kind == "restart")
    assert (restart, len(figure.lines[0].values)) == (7, 11)  # steps before it, and all of them
    tokens = [step.number("trained_tokens") for step in kept_steps(run.events)]
    assert tokens == [2048 * (number + 1) for number in range(8)]


def test_log_alone_tells_init_evaluations_and_the_rest(tmp_path: Path) -> None:
    log = write_run(tmp_path / "run") / "result_0.txt"
    log = log.rename(tmp_path / "result_0.txt")
    times = timeline(read_recorded_run(log))
    assert times.seconds == pytest.approx({"init": 2.0, "train": 6.5, "evaluate": 4.5})
    assert times.merged


def test_killed_runs_last_line_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    events = folder / "events.jsonl"
    whole = len(read_recorded_run(folder).events)
    events.write_text(events.read_text() + '{"time_ms": 17000, "key": "st')
    assert len(read_recorded_run(folder).events) == whole
