"""Compose a report: headline, verdict, key figures, and sections in their order."""

import datetime
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmark.judging.report.curve_differences import differences
from benchmark.judging.report.figures import figures, in_panels
from benchmark.judging.report.judgement import (
    Judgement,
    ReportedRun,
    ReviewedSystem,
    progress_unit,
    reported_runs,
    system_names,
)
from benchmark.judging.report.leaderboard import changes_table, runs_table, systems_tables
from benchmark.judging.report.origin_section import origin_section
from benchmark.judging.report.page_parts import (
    CAUTION,
    NOTHING,
    Cell,
    Chart,
    Figure,
    KeyFigure,
    Page,
    Row,
    Section,
    Table,
    Words,
    accelerator_minutes,
    number,
    perplexity,
    took,
)
from benchmark.judging.report.planned_run import planned_section
from benchmark.judging.report.results_table import judged_frame
from benchmark.judging.report.review_section import NOT_JUDGED, review_section, verdict_of
from benchmark.judging.report.time_section import slowness_section, time_section, timeline
from benchmark.judging.results.run_summary import RunSummary
from foundation.plain_text import shortened
from foundation.sizes import duration

SCORES = (
    "Each score is that of its system: the mean time without the fastest and the slowest run, times the factor of the "
    "reference points."
)
MOST_NAMED, MOST_TITLE = 6, 200
MOST_COLUMNS = 12
"""Most columns of a table with a column for each run: a wider table cannot be read."""
MOST_COUNTS = 3
"""Most runs whose counts stand side by side in a cell."""
LEFT_OUT = "no result_*.txt there, and not on the page"
MANY_TOKENS = 10_000_000
CONVERGENCE_HEAD = (
    "System", "Batch", "Each run", "Without fastest and slowest", "Compared with", "Their mean", "Accepted from",
    "Factor", "Stands",
)  # fmt: skip
FIGURE_SECTIONS = (
    ("training", "Training", ("loss", "learning_rate", "grad_norm")),
    ("speed", "Speed", ("step_time", "tflops", "mfu")),
)


def make_page(
    judgement: Judgement,
    previous_systems: Sequence[ReviewedSystem] | None = None,
    plan: Path | None = None,
    page_folder: Path | None = None,
) -> Page:
    """Return the page about a review.

    Links to logs are relative to ``page_folder``.
    Raises InputError for a plan that does not fit, and for a user's config.json that cannot be read.
    """
    runs, names = reported_runs(judgement), system_names(judgement)
    timelines = [timeline(run.recorded) for run in runs]
    all_figures = figures(runs, timelines, judgement.rulesets[-1]) if runs else []
    accuracy = next((figure for figure in all_figures if figure.name == "accuracy"), None)
    difference = None if accuracy is None else differences(accuracy, [run.summary for run in runs])
    all_figures += [] if difference is None else [difference]
    panels = in_panels(
        all_figures, [run.group for run in runs], names if len(names) > 1 else [run.name for run in runs]
    )
    labels = names if len(names) > 1 else [run.name for run in runs]
    headline = _headline(runs, judgement)
    judged = not runs or any(run.recorded.is_judged for run in runs)
    review = review_section(judgement, runs) if judged else None
    questioned = any(subject.of("error") or subject.of("warning") for subject in judgement.subjects)
    sections = [
        _top(judgement, names, previous_systems),
        *([review] if questioned else []),
        _runs(judgement, runs, names, page_folder),
        planned_section(runs, plan),
        _accuracy(runs, names, judgement, {figure.name for figure in all_figures}),
        time_section(runs, timelines),
        *_charts(all_figures, panels),
        slowness_section(runs),
        *([] if questioned else [review]),
        origin_section(runs, names, judgement),
    ]
    timestamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    several = len(judgement.systems) > 1 or bool(judgement.problems)
    return Page(
        title=shortened(f"{headline}: {', '.join(labels)}", MOST_TITLE),
        subject=_subject(runs, labels),
        headline=headline,
        verdict=verdict_of(judgement) if judged else NOT_JUDGED,
        key_figures=[] if several else list(_key_figures(runs, judgement)),
        sections=[section for section in sections if section is not None],
        footer=f"Made {timestamp} by python -m benchmark report. Figures: uPlot 1.6.32 (MIT licence). Times by the "
        "logs' clocks.",
        figures=panels,
        runs=[(run.name, run.group, run.dash) for run in runs],
    )


def _top(judgement: Judgement, names: Sequence[str], previous_systems: Sequence[ReviewedSystem] | None) -> Section:
    """Return the leaderboard of several systems, and the changes since another round."""
    frame = judged_frame(judgement)
    parts: list[Table | Words] = []
    if len(names) > 1 or judgement.problems:
        parts += [*systems_tables(frame, names, judgement), Words(f"{SCORES} {CAUTION}", quiet=True)]
    if previous_systems is not None:
        parts.append(changes_table(judgement.systems, names, previous_systems))
    parts += [Words(f"{folder}: {LEFT_OUT}.") for folder in judgement.empty_folders]
    return Section("top", "", parts)


def _runs(
    judgement: Judgement, runs: Sequence[ReportedRun], names: Sequence[str], page_folder: Path | None
) -> Section | None:
    """Return the table of several runs."""
    if len(runs) < 2:
        return None
    return Section("runs", "Runs", [runs_table(judged_frame(judgement), runs, names, judgement, page_folder)])


def _subject(runs: Sequence[ReportedRun], names: Sequence[str]) -> str:
    summaries = [run.summary for run in runs]
    values_by_name = [
        sorted({value for summary in summaries if (value := getattr(summary, name))})
        for name in ("org", "platform", "benchmark")
    ]
    submission = " · ".join(
        ", ".join(values[:MOST_NAMED]) + (" …" if len(values) > MOST_NAMED else "")
        for values in values_by_name
        if values
    )
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
    return " · ".join(text for text in (submission or "MLPerf log", listed) if text)


def _headline(runs: Sequence[ReportedRun], judgement: Judgement) -> str:
    score, systems = judgement.score, judgement.systems
    if score is not None and score.minutes is not None:
        return f"Score {took(score.minutes)}"
    if len(systems) > 1:
        benchmarks = {system.score.benchmark for system in systems}
        if len(benchmarks) > 1:
            return f"{len(systems)} systems, {len(benchmarks)} benchmarks"
        return _of_systems(
            [system.score.minutes for system in systems if system.score.minutes is not None], len(systems)
        )
    if len(runs) > 1:
        reached = sum(run.summary.reached is not None for run in runs)
        return f"{reached} of {len(runs)} runs reached the target"
    if not runs:
        return "No results"
    summary = runs[0].summary
    if summary.judged is None:
        return "No known benchmark" if summary.log.events else "No MLPerf log"
    if runs[0].recorded.target is None and summary.evaluations:
        final_value = perplexity(summary.evaluations[-1].log_perplexity, summary.target, "{:.4f}")
        return f"Log perplexity {final_value}; the run had no target"
    if summary.reached is None:
        return f"Target {summary.target:g} not reached"
    if summary.minutes is None:
        return f"Target {summary.target:g} reached; the run has no start or no end"
    return f"Target {summary.target:g} reached in {took(summary.minutes)}"


def _of_systems(minutes: Sequence[float], systems: int) -> str:
    """Return the range of the scores, best first; no score stands for several systems."""
    if not minutes:
        return f"{systems} systems, none with a score"
    lacking = "" if len(minutes) == systems else f", {len(minutes)} of them with a score"
    span = " to ".join(dict.fromkeys(f"{score:.2f}" for score in (minutes[0], minutes[-1])))
    return f"{systems} systems{lacking}: {span} minutes"


def _key_figures(runs: Sequence[ReportedRun], judgement: Judgement) -> Iterator[KeyFigure]:
    """Yield the score with its factor, and figures of the system's runs, each with its median and its range."""
    score, summaries = judgement.score, [run.summary for run in runs]
    if score is not None and score.minutes is not None:
        how = judgement.systems[0].result_set.judged.middle_words
        how = how if score.factor == 1 else f"{score.measured_minutes:.2f} min x {score.factor:.4f}"
        value, unit = took(score.minutes).split(" ")
        yield KeyFigure("Score", value, unit, how)
    else:
        yield from _median("Run time", [summary.minutes for summary in summaries], took)
    if score is not None and score.accelerators and score.accelerator:
        kind = "Devices" if score.accelerator == "cpu" else "Accelerators"
        yield KeyFigure(kind, f"{score.accelerators:,}", "", score.accelerator)
    if score is not None and score.accelerators and score.minutes is not None:
        yield KeyFigure(
            "Accelerator-minutes", accelerator_minutes(score.accelerators * score.minutes), "", "score x accelerators"
        )
    if score is not None and score.mfu is not None and score.tflops_per_accelerator is not None:
        peak = f"{score.peak_tflops:,.0f} TFLOP/s in {score.peak_format}"
        note = f"{score.tflops_per_accelerator:,.0f} of {peak}, whole run. {CAUTION}"
        yield KeyFigure("MFU", f"{score.mfu:.1%}", "", note)
    target = runs[0].recorded.target if runs else None

    def last_value(summary: RunSummary) -> float | None:
        return summary.evaluations[-1].log_perplexity if summary.evaluations else None

    progress = progress_unit(summaries)
    yield from _median(progress.name.capitalize(), [summary.trained_tokens for summary in summaries], progress.count)
    yield from _median("Evaluations", [len(summary.evaluations) or None for summary in summaries], lambda x: f"{x:.0f}")
    yield from _median(
        "Last log perplexity", [last_value(summary) for summary in summaries], lambda x: f"{perplexity(x, target)} nats"
    )
    yield from _median(
        "Throughput", [summary.tokens_per_s for summary in summaries], lambda x: f"{number(x, '{:,.0f}')} tokens/s"
    )
    yield from _median("Init", [summary.init_s for summary in summaries], duration)
    yield from _median(
        "Batch size", [summary.global_batch_size for summary in summaries], lambda x: f"{number(x, '{:,.0f}')} samples"
    )
    restarts = sum(len(summary.restarts) for summary in summaries)
    if restarts:
        yield KeyFigure("Restarts", str(restarts))


def _median(name: str, values: Sequence[float | None], form: Callable[[float], str]) -> Iterator[KeyFigure]:
    ordered = sorted(value for value in values if value is not None)
    if ordered:
        value, _, unit = form(statistics.median(ordered)).partition(" ")
        low, high = form(ordered[0]), form(ordered[-1])
        yield KeyFigure(name, value, unit, "" if low == high else f"median of {len(ordered)}, {low} to {high}")


def _accuracy(
    runs: Sequence[ReportedRun], names: Sequence[str], judgement: Judgement, figure_names: set[str]
) -> Section | None:
    """Return the curves, a table of every evaluation, and the systems' results in the convergence test."""
    if "accuracy" not in figure_names:
        return None
    parts: list[Chart | Table] = [Chart(name) for name in ("accuracy", "difference") if name in figure_names]
    if len(runs) <= MOST_COLUMNS:
        parts.append(_evaluations(runs))
    tested = [
        Row(list(_convergence_cells(system, name)))
        for system, name in zip(judgement.systems, names, strict=True)
        if system.result_set.convergence.standing != "not tested"
    ]
    if tested:
        units = " or ".join(sorted({system.result_set.judged.unit for system in judgement.systems}))
        title = f"Convergence: {units} to the target, compared with reference runs"
        numbers = (1, 2, 3, 5, 6, 7)
        parts.append(Table("Convergence", CONVERGENCE_HEAD, tested, numbers, look="convergence cards", title=title))
    return Section("accuracy", "Accuracy", parts)


def _evaluations(runs: Sequence[ReportedRun]) -> Table:
    """Return a table with a row per number of tokens and a column per run."""
    unit = progress_unit([run.summary for run in runs])
    table: dict[float, dict[int, float]] = {}
    for index, run in enumerate(runs):
        for evaluation in run.summary.evaluations:
            if evaluation.tokens is not None and evaluation.log_perplexity is not None:
                table.setdefault(evaluation.tokens, {})[index] = evaluation.log_perplexity
    rows = []
    for tokens in sorted(table):
        values = [perplexity(table[tokens].get(n), run.recorded.target) for n, run in enumerate(runs)]
        rows.append(Row([Cell(unit.count(tokens)), *map(Cell, values)]))
    head = (unit.name.capitalize(), *(run.name for run in runs))
    summary = "Every evaluation"
    return Table(summary, head, rows, numbers=range(len(head)), look="", summary=summary)


def _convergence_cells(system: ReviewedSystem, name: str) -> Iterator[Cell]:
    result, judged = system.result_set.convergence, system.result_set.judged
    point = result.point

    def in_units(tokens: float | None) -> str:
        return NOTHING if tokens is None else _count_text(tokens / judged.tokens_per_unit)

    kind = {"passes": "good", "passes, scaled": "good", "fails": "bad"}.get(result.standing, "warn")
    yield Cell(name)
    yield Cell(number(result.batch_size, "{:,.0f}"))
    counts = [in_units(tokens) for tokens in result.tokens]
    if len(counts) <= MOST_COUNTS:
        yield Cell(" ".join(counts), notes=[judged.unit])
    else:
        yield Cell(f"{counts[0]} to {counts[-1]}", notes=[judged.unit], folded=(f"{len(counts)} runs", counts))
    yield Cell(in_units(result.middle))
    yield Cell(result.why)
    yield Cell(in_units(None if point is None else point.mean))
    yield Cell(in_units(None if point is None else point.least))
    yield Cell(f"{result.factor:.4f}")
    yield Cell(result.standing, kind=kind)


def _count_text(value: float) -> str:
    """Return a number of tokens or samples, in millions if it is large."""
    return number(value, "{:,.0f}") if value < MANY_TOKENS else number(value / 1e6, "{:,.1f}M")


def _charts(all_figures: Sequence[Figure], shown_figures: Sequence[Figure]) -> Iterator[Section]:
    names = {figure.name for figure in all_figures}
    panels = any(figure.family for figure in shown_figures)
    for section_id, title, figure_names in FIGURE_SECTIONS:
        parts = [Chart(name) for name in figure_names if name in names]
        if parts:
            yield Section(section_id, title, parts, grid="" if panels else "grid")
