"""What a report says, as text: the model that ``page/report.html.j2`` lays out."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmark.report.figures import Figure
from benchmark.report.judgement import Judgement
from benchmark.report.timeline import MEANINGS, Timeline
from benchmark.results.recorded_run import RecordedRun, settings
from benchmark.review.findings import Finding
from benchmark.review.verdict import SEVERITIES

COLOURS = 6
NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class KeyFigure:
    name: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class RunRow:
    name: str
    colour: int
    seeds: str
    minutes: str
    tokens: str
    last: str
    """Last log perplexity."""
    status: str
    evaluations: Sequence[object]


@dataclass(frozen=True)
class TimePart:
    name: str
    label: str
    seconds: str
    share: str
    start: float
    """In thousandths of the bar."""
    width: float
    meaning: str


@dataclass(frozen=True)
class Times:
    name: str
    text: str
    """All parts in one sentence."""
    parts: Sequence[TimePart]


@dataclass(frozen=True)
class Verdict:
    kind: str
    """good, warn or bad."""
    sign: str
    word: str
    text: str
    long: str


@dataclass(frozen=True)
class CheckRow:
    """What one official tool said of one thing."""

    tool: str
    subject: str
    kind: str
    """good or bad."""
    verdict: str
    said: Sequence[str]


@dataclass(frozen=True)
class RunGroup:
    """A table of the section on origin: a row has one value per run, or one for all."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Page:
    title: str
    subject: str
    headline: str
    verdict: Verdict
    key_figures: Sequence[KeyFigure]
    runs: Sequence[RunRow]
    evaluations: Sequence[tuple[str, Sequence[str]]]
    times: Sequence[Times]
    figures: Sequence[Figure]
    mark_kinds: Sequence[str]
    checks: Sequence[CheckRow]
    findings: Sequence[Finding]
    origin: Sequence[RunGroup]
    footer: str


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
        runs=[_run_row(run, name, number) for number, (run, name) in enumerate(zip(runs, names, strict=True))],
        evaluations=_evaluations(runs),
        times=[_times(times, name) for times, name in zip(timelines, names, strict=True) if times.total > 0],
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
        origin=[group for group in _origin(runs, names) if group.rows],
        footer=footer,
    )


def duration(seconds: float) -> str:
    """Seconds with the unit that reads best."""
    if seconds >= 5400:
        return f"{seconds / 3600:.2f} h"
    if seconds >= 300:
        return f"{seconds / 60:.2f} min"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.1f} s"


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
        return f"Log perplexity {_text(summary.evaluations[-1].log_perplexity, '{:.4f}')}; the run had no target"
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
        yield from _middle("Run time", [one.minutes for one in summaries], "{:.2f}", "min")
    yield from _middle("Tokens", [one.trained_tokens for one in summaries], "{:,.0f}", "")
    yield from _middle("Evaluations", [len(one.evaluations) or None for one in summaries], "{:.0f}", "")
    last = [one.evaluations[-1].log_perplexity if one.evaluations else None for one in summaries]
    yield from _middle("Last log perplexity", last, "{:.5f}", "nats")
    yield from _middle("Throughput", [one.tokens_per_s for one in summaries], "{:,.0f}", "tokens/s")
    yield from _middle("Init", [one.init_s for one in summaries], "{:.1f}", "s")
    sizes = [one.global_batch_size for one in summaries]
    yield from _middle("Batch size", sizes, "{:,.0f}", "samples")
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


def _middle(name: str, values: Sequence[float | None], form: str, unit: str) -> Iterator[KeyFigure]:
    """One figure of all runs: their median, and what it lies between."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return
    low, high = form.format(found[0]), form.format(found[-1])
    note = "" if low == high else f"median of {len(found)}, {low} to {high}"
    yield KeyFigure(name, form.format(statistics.median(found)), unit, note)


def _run_row(run: RecordedRun, name: str, number: int) -> RunRow:
    summary = run.summary
    last = summary.evaluations[-1].log_perplexity if summary.evaluations else None
    return RunRow(
        name,
        number % COLOURS,
        ", ".join(map(str, summary.seeds)) or NOTHING,
        _text(summary.minutes, "{:.2f}"),
        _text(summary.trained_tokens, "{:,.0f}"),
        _text(last, "{:.5f}"),
        summary.status or NOTHING,
        summary.evaluations,
    )


def _text(value: float | None, form: str) -> str:
    return NOTHING if value is None else form.format(value)


def _evaluations(runs: Sequence[RecordedRun]) -> list[tuple[str, list[str]]]:
    """Rows by tokens, columns by run."""
    table: dict[float, dict[int, float]] = {}
    for number, run in enumerate(runs):
        for one in run.summary.evaluations:
            if one.tokens is not None and one.log_perplexity is not None:
                table.setdefault(one.tokens, {})[number] = one.log_perplexity
    return [
        (f"{tokens:,.0f}", [_text(table[tokens].get(number), "{:.5f}") for number in range(len(runs))])
        for tokens in sorted(table)
    ]


def _times(times: Timeline, name: str) -> Times:
    parts: list[TimePart] = []
    start = 0.0
    for part, seconds in times.seconds.items():
        if seconds <= 0:
            continue
        share = seconds / times.total
        label = "train and all else" if part == "train" and times.merged else part
        meaning = "all of the run that is not told apart" if label != part else MEANINGS[part]
        width = 1000 * share
        parts.append(
            TimePart(part, label, duration(seconds), f"{share:.1%}", round(start, 2), round(width, 2), meaning)
        )
        start += width
    told = ", ".join(f"{part.label} {part.seconds} ({part.share})" for part in parts)
    return Times(name, f"{duration(times.total)} in all: {told}", parts)


def _origin(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[RunGroup]:
    columns = list(names) if len(runs) > 1 else []
    yield RunGroup("Log", columns, _side_by_side([_of_log(run) for run in runs]))
    yield RunGroup("Configuration", columns, _side_by_side([settings(run) for run in runs]))
    yield RunGroup("Data and checkpoint", columns, _side_by_side([_digests(run) for run in runs]))
    yield RunGroup("Code and environment", columns, _side_by_side([run.environment for run in runs]))


def _side_by_side(tables: Sequence[Mapping[str, object]]) -> list[tuple[str, list[str]]]:
    rows: dict[str, None] = {name: None for table in tables for name in table}
    return [(name, [str(table.get(name, NOTHING)) for table in tables]) for name in rows]


def _of_log(run: RecordedRun) -> dict[str, object]:
    summary, log = run.summary, run.summary.log
    found = {
        "file": str(run.path),
        "size": f"{log.size_bytes:,} bytes, {log.num_lines:,} lines, {len(log.events):,} events",
        "submitter": summary.org,
        "platform": summary.platform,
        "benchmark": summary.benchmark,
        "division": summary.division,
        "status": summary.status_class,
        "seeds": ", ".join(map(str, summary.seeds)) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _digests(run: RecordedRun) -> dict[str, object]:
    """MD5 by the name of what the run read."""
    found: dict[str, object] = {}
    for path, entry in run.inputs.items():
        digests = entry.get("md5") if isinstance(entry, dict) else None
        if isinstance(digests, dict):
            found.update({str(name): f"MD5 {digest}" for name, digest in digests.items()})
        else:
            found[path.rpartition("/")[2]] = "no manifest"
    return found
