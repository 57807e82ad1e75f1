"""What a report says: verdict, key figures, and the tables of page_tables.py, put into one page."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.report.comparing.previous_round import ChangeRow
from benchmark.report.comparing.system_rows import convergence_rows, system_rows
from benchmark.report.figures import Figure
from benchmark.report.judgement import Judgement
from benchmark.report.page_model import CheckRow, FindingRow, KeyFigure, Page, Verdict
from benchmark.report.page_numbers import perplexity
from benchmark.report.page_tables import MOST_COLUMNS, evaluations_by_tokens, origin, run_row, times_of
from benchmark.report.planned_run import PlannedShown
from benchmark.report.reported_run import COLOURS, ReportedRun
from benchmark.report.slowness import slowness
from benchmark.report.timeline import Timeline
from benchmark.results.printable import shortened
from benchmark.results.recorded_run import RecordedRun
from benchmark.review.findings import Finding
from benchmark.review.official_tools import ToolVerdict
from benchmark.review.verdict import SEVERITIES

CAUTION = "MFU is of the dense BF16 peak: FP8 and int8 have a higher one, and logs do not say which a run used."
MOST_NAMED, MOST_TITLE = 6, 200


@dataclass(frozen=True)
class PageInput:
    """What a page is made of."""

    runs: Sequence[ReportedRun]
    timelines: Sequence[Timeline]
    """Of the runs."""
    figures: Sequence[Figure]
    judgement: Judgement
    names: Sequence[str]
    """Of the systems."""
    footer: str
    beside: Path | None = None
    """The folder of the page, from which it links to logs; None: it does not."""
    changes: Sequence[ChangeRow] = ()
    planned: PlannedShown | None = None


def make_page(given: PageInput) -> Page:
    runs, judgement, names = given.runs, given.judgement, given.names
    recorded = [run.recorded for run in runs]
    headline, near = _headline(recorded, judgement), _nearer(given)
    several = len(judgement.systems) > 1 or bool(judgement.problems)
    coloured = len({run.group for run in runs}) <= COLOURS
    shown = [(run, times) for run, times in zip(runs, given.timelines, strict=True) if times.total > 0]
    if len(shown) > MOST_COLUMNS:
        shown = [(run, times) for run, times in shown if run.facts.summary is run.facts.system.middle]
    longest = max((times.total for _, times in shown), default=0.0)
    told = names if len(judgement.systems) > 1 else [run.name for run in runs]
    return Page(
        title=shortened(f"{headline}: {', '.join(told)}", MOST_TITLE),
        subject=_subject(recorded, told),
        headline=headline,
        verdict=_verdict(judgement),
        key_figures=[] if several else list(_key_figures(recorded, judgement)),
        systems=system_rows(judgement.systems, names, COLOURS, given.beside) if several else [],
        caution=CAUTION,
        problems=[(path.name, near(problem)) for path, problem in judgement.problems],
        changes=given.changes,
        planned=given.planned,
        runs=[run_row(run, coloured) for run in runs],
        evaluations=evaluations_by_tokens(recorded),
        convergence=convergence_rows(judgement.systems, names),
        times=[times_of(times, run.name, longest) for run, times in shown],
        slowness=slowness(recorded, [run.name for run in runs]),
        figures=given.figures,
        mark_kinds=sorted({mark.kind for figure in given.figures for mark in figure.marks}),
        checks=_checks(judgement.checks, near),
        findings=_findings(judgement, near),
        origin=[group for group in origin(runs, judgement.systems, names) if group.rows],
        footer=given.footer,
    )


def _checks(checks: Sequence[ToolVerdict], near: Callable[[str], str]) -> list[CheckRow]:
    """What did not pass, one by one; then what passed, a line for each tool."""
    rows = [
        CheckRow(
            one.tool, near(one.subject), "bad", one.outcome, [near(line) for line in (*one.complaints, *one.notes)]
        )
        for one in checks
        if not one.passed
    ]
    for tool in dict.fromkeys(one.tool for one in checks if one.passed):
        mine = [one for one in checks if one.passed and one.tool == tool]
        subject = (
            near(mine[0].subject) if len(mine) == 1 else f"{len(mine)} of {sum(one.tool == tool for one in checks)}"
        )
        rows.append(
            CheckRow(tool, subject, "good", "passed", list(dict.fromkeys(near(n) for one in mine for n in one.notes)))
        )
    return rows


def _findings(judgement: Judgement, near: Callable[[str], str]) -> list[FindingRow]:
    """Each finding once, with all its places."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for one in judgement.findings:
        groups.setdefault((one.severity, one.rule, one.found, one.due, one.mend), []).append(one)
    return [
        FindingRow(
            severity=same[0].severity,
            rule=same[0].rule,
            source=same[0].rules or same[0].source,
            places=[near(place) for one in same for place in (one.place, *one.also)],
            text=same[0].text,
            found=near(same[0].found),
            due=near(same[0].due),
            mend=near(same[0].mend),
            question=same[0].question,
        )
        for same in groups.values()
    ]


def _subject(runs: Sequence[RecordedRun], names: Sequence[str]) -> str:
    parts = [sorted({text for run in runs if (text := _told(run, name))}) for name in ("org", "platform", "benchmark")]
    told = " · ".join(", ".join(part[:MOST_NAMED]) + (" …" if len(part) > MOST_NAMED else "") for part in parts if part)
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
    return f"{told or 'MLPerf log'} · {listed}" if listed else told or "MLPerf log"


def _nearer(given: PageInput) -> Callable[[str], str]:
    """Shorten the paths of logs in a text to the names that the page has for them, and others to what follows the
    folder that holds their package or run."""
    short = {str(run.recorded.path.absolute()): run.name for run in given.runs}
    for place in given.judgement.places:
        short[f"{place.path.absolute().parent}/"] = ""
    for run in given.runs:
        if run.facts.system.subject.kind == "runs":
            short[f"{run.recorded.path.absolute().parent}/"] = ""
            short[str(run.recorded.path.absolute().parent)] = "/".join(run.recorded.path.absolute().parts[-3:-1])

    def near(text: str) -> str:
        for path, name in short.items():
            text = text.replace(path, name)
        return text

    return near


def _told(run: RecordedRun, name: str) -> str | None:
    value: str | None = getattr(run.summary, name)
    return value


def _headline(runs: Sequence[RecordedRun], judgement: Judgement) -> str:
    score, systems = judgement.score, judgement.systems
    if score is not None and score.minutes is not None:
        return f"Score {_took(score.minutes)}"
    if len(systems) > 1:
        return _of_systems(sorted(one.score.minutes for one in systems if one.score.minutes is not None), len(systems))
    if len(runs) > 1:
        reached = sum(run.summary.reached is not None for run in runs)
        return f"{reached} of {len(runs)} runs reached the target"
    if not runs:
        return "No results"
    summary = runs[0].summary
    if summary.judged is None:
        return "No known benchmark" if summary.log.events else "No MLPerf log"
    if runs[0].target is None and summary.evaluations:
        last = perplexity(summary.evaluations[-1].log_perplexity, summary.target, "{:.4f}")
        return f"Log perplexity {last}; the run had no target"
    if summary.reached is None:
        return f"Target {summary.target:g} not reached"
    if summary.minutes is None:
        return f"Target {summary.target:g} reached; the run has no start or no end"
    return f"Target {summary.target:g} reached in {_took(summary.minutes)}"


def _of_systems(minutes: Sequence[float], systems: int) -> str:
    """Each system has a score of its own; none stands for all."""
    if not minutes:
        return f"{systems} systems, none with a score"
    lacking = "" if len(minutes) == systems else f", {len(minutes)} of them with a score"
    span = " to ".join(dict.fromkeys(f"{one:.2f}" for one in (minutes[0], minutes[-1])))
    return f"{systems} systems{lacking}: {span} minutes"


def _took(minutes: float) -> str:
    return f"{minutes:.2f} minutes" if minutes >= 2 else f"{minutes * 60:.1f} seconds"


def _verdict(judgement: Judgement) -> Verdict:
    found = judgement.findings
    counts = {severity: sum(one.severity == severity for one in found) for severity in SEVERITIES}
    told = ", ".join(f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in counts.items())
    checks = judgement.checks
    failed = sum(not check.passed for check in checks)
    official = f"{len(checks) - failed} of {len(checks)} official checks passed"
    if len(judgement.subjects) > 1:
        passed = sum(subject.passed for subject in judgement.subjects)
        official = f"{passed} of {len(judgement.subjects) + len(judgement.problems)} submissions pass, {official}"
    kind = "bad" if not judgement.passed else "warn" if counts["warning"] else "good"
    sign, word = ("✓", "Review passed") if judgement.passed else ("✗", "Review failed")
    text = f"under ruleset {', '.join(judgement.rulesets) or 'none'}: {official}; {told}."
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
    yield from _median_figure("Last log perplexity", last, "{:.5f}", "nats", runs[0].target)
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
        note = f"{score.tflops_per_accelerator:,.0f} of {score.peak_tflops:,.0f} TFLOP/s, whole run. {CAUTION}"
        yield KeyFigure("MFU", f"{score.mfu:.1%}", "", note)


def _median_figure(
    name: str, values: Sequence[float | None], form: str, unit: str, target: float | None = None
) -> Iterator[KeyFigure]:
    """One figure of all runs of a system: their median, and what it lies between."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return
    low, middle, high = (perplexity(one, target, form) for one in (found[0], statistics.median(found), found[-1]))
    note = "" if low == high else f"median of {len(found)}, {low} to {high}"
    yield KeyFigure(name, middle, unit, note)
