"""The data of the figures."""

from pathlib import Path

import pytest

from benchmark.report.figures import MOST_POINTS, Band, Figure, figures, kept_steps, minutes, thinned
from benchmark.report.step_speed import Speed
from benchmark.report.timeline import timeline
from benchmark.results.recorded_run import RecordedRun, read_recorded_run
from tests.benchmark.report.runs import START_MS, MadeRun, restarted_run, write_run

UNKNOWN = Speed(None, None)


def drawn(*runs: RecordedRun, speed: Speed = UNKNOWN, band: Band | None = None) -> dict[str, Figure]:
    found = figures(runs, [timeline(run) for run in runs], [speed] * len(runs), band)
    return {figure.name: figure for figure in found}


def test_long_lines_keep_their_extremes() -> None:
    points = [(float(x), 1.0) for x in range(100_000)]
    points[34_567] = (34_567.0, 9.0)
    points[71_111] = (71_111.0, -9.0)
    kept = thinned(points)
    assert len(kept) <= MOST_POINTS
    assert {(34_567.0, 9.0), (71_111.0, -9.0)} <= set(kept)
    assert kept == sorted(kept)


def test_steps_lost_by_a_restart_are_in_no_curve_and_the_line_breaks_there(tmp_path: Path) -> None:
    run = read_recorded_run(restarted_run(tmp_path / "run"))
    figure = drawn(run)["step_time"]
    restart = figure.lines[0].y.index(None)
    assert figure.lines[0].x[restart] == next(mark.x for mark in figure.marks if mark.kind == "restart")
    assert (restart, len(figure.lines[0].values)) == (7, 11)  # steps before it, and all of them
    tokens = [step.number("trained_tokens") for step in kept_steps(run.events)]
    assert tokens == [2048 * (number + 1) for number in range(8)]


def test_run_begun_anew_has_the_steps_of_its_last_beginning(tmp_path: Path) -> None:
    """Killed before its first checkpoint: there is no restart in the log."""
    made = MadeRun(tmp_path / "run")
    for steps in (3, 2):
        made.steps = 0
        made.begin()
        for _ in range(steps):
            made.step()
    kept = kept_steps(read_recorded_run(made.end()).events)
    assert [step.number("trained_tokens") for step in kept] == [2048, 4096]


def test_figures_of_a_run(tmp_path: Path) -> None:
    run = read_recorded_run(write_run(tmp_path / "run"))
    found = drawn(run, speed=Speed(0.25, 10.0), band=Band(1.0, 2.0, "reference"))
    assert list(found) == ["accuracy", "loss", "learning_rate", "grad_norm", "step_time", "mfu"]
    accuracy = found["accuracy"]
    assert (accuracy.target, accuracy.band, accuracy.dots) == (2.44, Band(1.0, 2.0, "reference"), True)
    assert (accuracy.lines[0].x, accuracy.lines[0].y) == ([8192, 16384, 24576], [5.5, 3.5, 2.43])
    assert set(found["mfu"].lines[0].values) == {100 * 0.25 / 10 / 0.5}
    assert [mark.kind for mark in found["step_time"].marks] == ["evaluation"] * 3 + ["checkpoint"] * 2
    assert "tflops" in drawn(run, speed=Speed(0.25, None))


def test_log_alone_has_fewer_figures_and_two_targets_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    log = read_recorded_run((run / "result_0.txt").rename(tmp_path / "result_0.txt"))
    other = read_recorded_run(write_run(tmp_path / "other", submission_benchmark="gpt3"))
    assert list(drawn(log)) == ["accuracy"]
    both = drawn(log, other)["accuracy"]
    assert (both.target, [line.run for line in both.lines]) == (None, [0, 1])


def test_minutes_since_the_start(tmp_path: Path) -> None:
    run = read_recorded_run(write_run(tmp_path / "run"))
    assert minutes(run, START_MS + 2_000 + 90_000) == pytest.approx(1.5)
