"""The data of the figures."""

from pathlib import Path

import numpy
import pytest

from benchmark.judging.report.curve_differences import differences, published_curves
from benchmark.judging.report.figures import figures, in_panels, kept_steps, reference_band
from benchmark.judging.report.page_parts import AxisMark, Band, Figure, Line
from benchmark.judging.report.time_section import timeline
from benchmark.judging.results.recorded_run import read_recorded_run
from benchmark.judging.results.run_summary import RunSummary
from tests.benchmark.judging.report.made_pages import made_runs
from tests.benchmark.judging.report.runs import restarted_run, write_run
from tests.benchmark.judging.review.fixture import SYSTEM, Log, Record, T, records, summary_of, write_package


def drawn(*paths: Path) -> dict[str, Figure]:
    runs = made_runs(*paths)
    found = figures(runs, [timeline(run.recorded) for run in runs], "4.1.0")
    return {figure.name: figure for figure in found}


def run_of(size: int) -> RunSummary:
    return summary_of(records(1, batch_size=size, evaluations=2))


def test_steps_lost_by_a_restart_are_in_no_curve_and_the_line_breaks_there(tmp_path: Path) -> None:
    path = restarted_run(tmp_path / "run")
    figure = drawn(path)["step_time"]
    restart = figure.lines[0].y.index(None)
    assert figure.lines[0].x[restart] == next(mark.x for mark in figure.marks if mark.kind == "restart")
    assert (restart, len(figure.lines[0].points)) == (7, 11)  # steps before it, and all of them
    events = read_recorded_run(path).events
    tokens = numpy.asarray(events.of("step").numbers("trained_tokens"))[kept_steps(events)]
    assert tokens.tolist() == [2048 * (number + 1) for number in range(8)]


def test_figures_of_a_run_and_of_a_log_alone(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", (5.5, 1e308, 3.5, 2.43))
    found = drawn(path)
    assert list(found) == ["accuracy", "loss", "learning_rate", "grad_norm", "step_time", "tflops"]
    accuracy = found["accuracy"]
    assert (accuracy.target, accuracy.dots) == (2.44, True)
    assert (accuracy.lines[0].x, accuracy.lines[0].y) == ([8192, 24576, 32768], [5.5, 3.5, 2.43])
    assert [mark.kind for mark in found["step_time"].marks] == ["evaluation", *["checkpoint", "evaluation"] * 3]
    log = (path / "result_0.txt").rename(tmp_path / "result_0.txt")
    assert list(drawn(log)) == ["accuracy"]
    both = drawn(log, write_run(tmp_path / "other", submission_benchmark="gpt3"))["accuracy"]
    assert (both.target, [line.run for line in both.lines]) == (None, [0, 1])


def test_share_of_the_peak(tmp_path: Path) -> None:
    def timed(seed: int) -> list[Record]:
        log = records(seed)
        stats = {**next(one for one in log if one["key"] == "eval_start"), "key": "tracked_stats"}
        return [*log[:-2], {**stats, "event_type": "POINT_IN_TIME", "value": {"train_step_timing": 2.0}}, *log[-2:]]

    found = drawn(write_package(tmp_path, timed) / "results" / SYSTEM / "gpt3")
    (_, share), *_ = found["mfu"].lines[0].points
    assert share == pytest.approx(100 * 2048 * 2048 * 1.0764 / 512 / 989.4 / 2, rel=1e-4)  # 1.0764 TFLOP a token


@pytest.mark.parametrize(
    ("runs", "ruleset", "band"),
    [
        ([run_of(3072)], "4.0.0", Band(24 * T, 25 * T, "reference runs at batch size 3072")),  # without void runs
        ([run_of(5120)] * 2, "4.1.0", Band(26.5 * T, 27 * T, "reference runs, between 4096 and 6144")),
        ([run_of(1024)], "4.1.0", None),
        ([run_of(9000)], "4.1.0", None),
        ([run_of(2048), run_of(3072)], "4.1.0", None),
        ([], "4.1.0", None),
    ],
)
def test_band_of_the_reference_runs(runs: list[RunSummary], ruleset: str, band: Band | None) -> None:
    assert reference_band(runs, ruleset) == band
    unknown = Log(records(1))
    unknown.set("submission_benchmark", "bert")
    assert reference_band([summary_of(unknown.records)], ruleset) is None


def test_more_groups_than_colours_have_panels_on_one_scale() -> None:
    lines = [Line(run, [0, 1 + run], [run, 2 * run]) for run in range(8)]
    figure = Figure("loss", "Loss", "tokens", "tokens", "nats", lines, marks=[AxisMark(3, "restart", 0.5)])
    assert in_panels([figure], [0, 0, 0, 1, 1, 1, 2, 2], "abc") == [figure]
    panels = in_panels([figure], list(range(8)), "abcdefgh")
    assert [(panel.name, panel.title, panel.family, panel.heading) for panel in panels[:2]] == [
        ("loss-0", "a", "loss", "Loss"),
        ("loss-1", "b", "loss", "Loss"),
    ]
    assert {(panel.x_range, panel.y_range) for panel in panels} == {((0, 8), (0, 14))}
    assert [len(panel.marks) for panel in panels] == [0, 0, 0, 1, 0, 0, 0, 0]


def test_differences_to_the_published_runs_at_the_batch_size() -> None:
    curves = published_curves(2048)
    mean = curves.mean(axis=1)
    first = float(mean.index[0])
    line = Line(0, [first / 2, first, float(mean.index[1])], [9.0, mean.iloc[0] + 0.5, mean.iloc[1] - 0.25])
    figure = Figure("accuracy", "A", "tokens", "tokens", "nats", [line])
    found = differences(figure, [summary_of(records(1))])
    assert found is not None
    assert found.title == "Difference of log perplexity to the mean of the 48 published runs at batch size 2,048"
    assert (found.lines[0].x, found.lines[0].y) == ([first, float(mean.index[1])], [0.5, -0.25])
    assert found.shade is not None
    assert all(low <= 0 <= high < 0.01 for low, high in zip(found.shade.low, found.shade.high, strict=True))
    for others in ([run_of(1000)], [run_of(2048), run_of(3072)]):
        assert differences(figure, others) is None
