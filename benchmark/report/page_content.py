"""What a report says: verdict, key figures, and the tables of page_tables.py, put into one page."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from benchmark.report.figures import Figure
from benchmark.report.judgement import Judgement
from benchmark.report.page_model import CheckRow, KeyFigure, Page, Verdict
from benchmark.report.page_tables import evaluations_by_tokens, number, origin, run_row, times_of
from benchmark.report.slowness import slowness
from benchmark.report.timeline import Timeline
from benchmark.results.recorded_run import RecordedRun
from benchmark.review.verdict import SEVERITIES


def make_page(
    runs: Sequence[RecordedRun],
    names: Sequence[str],
    timelines: Sequence[Timeline],
    figures: Sequence[Figure],
    judgement: Judgement,
    footer: str,
) -> Page:
    """``names`` tell the runs apart."""
    headline, near = _headline(runs, judgement), _nearer(runs, names)
    return Page(
        title=f"{headline}: {', '.join(names)}",
        subject=_subject(runs, names),
        headline=headline,
        verdict=_verdict(judgement),
        key_figures=list(_key_figures(runs, judgement)),
        runs=[run_row(run, name, place) for place, (run, name) in enumerate(zip(runs, names, strict=True))],
        evaluations=evaluations_by_tokens(runs),
        times=[times_of(times, name) for times, name in zip(timelines, names, strict=True) if times.total > 0],
        slowness=slowness(runs, names),
        figures=figures,
        mark_kinds=sorted({mark.kind for figure in figures for mark in figure.marks}),
        checks=[
            CheckRow(one.tool, near(one.subject), "good" if one.passed else "bad", one.outcome, said)
            for one in judgement.checks
            for said in [[near(line) for line in (*one.complaints, *one.notes)]]
        ],
        findings=[
            replace(one, path=near(one.path), found=near(one.found), due=near(one.due), mend=near(one.mend))
            for one in judgement.findings
        ],
        origin=[group for group in origin(runs, names) if group.rows],
        footer=footer,
    )


def _subject(runs: Sequence[RecordedRun], names: Sequence[str]) -> str:
    parts = [sorted({text for run in runs if (text := _told(run, name))}) for name in ("org", "platform", "benchmark")]
    told = " · ".join(", ".join(part) for part in parts if part)
    return f"{told or 'MLPerf log'} · {', '.join(names)}"


def _nearer(runs: Sequence[RecordedRun], names: Sequence[str]) -> Callable[[str], str]:
    """Shorten the paths of logs in a text to the names that the page has for the runs, and of folders to their own."""
    short = {str(run.path.absolute()): name for run, name in zip(runs, names, strict=True)}
    short |= {f"{run.path.absolute().parent}/": "" for run in runs}
    short |= {str(run.path.absolute().parent): "/".join(run.path.absolute().parts[-3:-1]) for run in runs}

    def near(text: str) -> str:
        for path, name in short.items():
            text = text.replace(path, name)
        return text

    return near


def _told(run: RecordedRun, name: str) -> str | None:
    value: str | None = getattr(run.summary, name)
    return value


def _headline(runs: Sequence[RecordedRun], judgement: Judgement) -> str:
    score = judgement.score
    if score is not None and score.minutes is not None:
        return f"Score {_took(score.minutes)}"
    if len(runs) > 1:
        reached = sum(run.summary.reached is not None for run in runs)
        return f"{reached} of {len(runs)} runs reached the target"
    summary = runs[0].summary
    if summary.judged is None:
        return "No known benchmark" if summary.log.events else "No MLPerf log"
    if runs[0].target is None and summary.evaluations:
        return f"Log perplexity {number(summary.evaluations[-1].log_perplexity, '{:.4f}')}; the run had no target"
    if summary.reached is None:
        return f"Target {summary.target:g} not reached"
    if summary.minutes is None:
        return f"Target {summary.target:g} reached; the run has no start or no end"
    return f"Target {summary.target:g} reached in {_took(summary.minutes)}"


def _took(minutes: float) -> str:
    return f"{minutes:.2f} minutes" if minutes >= 2 else f"{minutes * 60:.1f} seconds"


def _verdict(judgement: Judgement) -> Verdict:
    found = judgement.findings
    counts = {severity: sum(one.severity == severity for one in found) for severity in SEVERITIES}
    told = ", ".join(f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in counts.items())
    checks = judgement.checks
    failed = sum(not check.passed for check in checks)
    official = f"{len(checks) - failed} of {len(checks)} official checks passed"
    kind = "bad" if not judgement.passed else "warn" if counts["warning"] else "good"
    sign, word = ("✓", "Review passed") if judgement.passed else ("✗", "Review failed")
    text = f"under ruleset {', '.join(judgement.rulesets)}: {official}; {told}."
    long = f"{word} {text}"
    if judgement.not_applicable:
        long += f" Without anything to check here: {', '.join(judgement.not_applicable)}."
    if judgement.score is not None and judgement.score.why_no_score:
        long += f" No score: {judgement.score.why_no_score}."
    return Verdict(kind, sign, word, text, long)


def _key_figures(runs: Sequence[RecordedRun], judgement: Judgement) -> Iterator[KeyFigure]:
    summaries = [run.summary for run in runs]
    yield from _score_figures(judgement)
    if judgement.score is None or judgement.score.minutes is None:
        yield from _median_figure("Run time", [one.minutes for one in summaries], "{:.2f}", "min")
    yield from _median_figure("Tokens", [one.trained_tokens for one in summaries], "{:,.0f}", "")
    yield from _median_figure("Evaluations", [len(one.evaluations) or None for one in summaries], "{:.0f}", "")
    last = [one.evaluations[-1].log_perplexity if one.evaluations else None for one in summaries]
    yield from _median_figure("Last log perplexity", last, "{:.5f}", "nats")
    yield from _median_figure("Throughput", [one.tokens_per_s for one in summaries], "{:,.0f}", "tokens/s")
    yield from _median_figure("Init", [one.init_s for one in summaries], "{:.1f}", "s")
    sizes = [one.global_batch_size for one in summaries]
    yield from _median_figure("Batch size", sizes, "{:,.0f}", "samples")
    restarts = sum(len(one.restarts) for one in summaries)
    if restarts:
        yield KeyFigure("Restarts", str(restarts))


def _score_figures(judgement: Judgement) -> Iterator[KeyFigure]:
    """The score with and without the factor of the reference points, and the speed of an accelerator."""
    score = judgement.score
    if score is None:
        return
    if score.minutes is not None:
        how = f"{score.measured_minutes:.2f} min x {score.factor:.4f}" if score.factor != 1 else "middle one of three"
        yield KeyFigure("Score", f"{score.minutes:.2f}", "min", how)
    if score.accelerators and score.accelerator:
        kind = "Devices" if score.accelerator == "cpu" else "Accelerators"
        yield KeyFigure(kind, f"{score.accelerators:,}", "", score.accelerator)
    if score.mfu is not None and score.tflops_per_accelerator is not None:
        note = f"{score.tflops_per_accelerator:,.0f} of {score.peak_tflops:,.0f} TFLOP/s, whole run"
        yield KeyFigure("MFU", f"{score.mfu:.1%}", "", note)


def _median_figure(name: str, values: Sequence[float | None], form: str, unit: str) -> Iterator[KeyFigure]:
    """One figure of all runs: their median, and what it lies between."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return
    low, high = form.format(found[0]), form.format(found[-1])
    note = "" if low == high else f"median of {len(found)}, {low} to {high}"
    yield KeyFigure(name, form.format(statistics.median(found)), unit, note)
