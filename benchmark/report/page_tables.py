"""The tables of a report: runs, evaluations, times, origin."""

from collections.abc import Iterator, Mapping, Sequence

from benchmark.goodput.time_kinds import MEANINGS
from benchmark.report.goodput_figure import attempts_shown
from benchmark.report.page_model import RunGroup, RunRow, TimePart, Times
from benchmark.report.timeline import Timeline
from benchmark.results.durations import duration
from benchmark.results.recorded_run import RecordedRun, settings

COLOURS = 6
NOTHING = "\N{EN DASH}"


def run_row(run: RecordedRun, name: str, place: int) -> RunRow:
    """One run's row of the first table, in the colour of its place."""
    summary = run.summary
    last = summary.evaluations[-1].log_perplexity if summary.evaluations else None
    return RunRow(
        name,
        place % COLOURS,
        ", ".join(map(str, summary.seeds)) or NOTHING,
        number(summary.minutes, "{:.2f}"),
        number(summary.trained_tokens, "{:,.0f}"),
        number(last, "{:.5f}"),
        summary.status or NOTHING,
        summary.evaluations,
    )


def evaluations_by_tokens(runs: Sequence[RecordedRun]) -> list[tuple[str, list[str]]]:
    """Rows by tokens, columns by run."""
    table: dict[float, dict[int, float]] = {}
    for place, run in enumerate(runs):
        for one in run.summary.evaluations:
            if one.tokens is not None and one.log_perplexity is not None:
                table.setdefault(one.tokens, {})[place] = one.log_perplexity
    return [
        (f"{tokens:,.0f}", [number(table[tokens].get(place), "{:.5f}") for place in range(len(runs))])
        for tokens in sorted(table)
    ]


def times_of(times: Timeline, name: str) -> Times:
    """The bar of one run's time, and its parts in words."""
    parts: list[TimePart] = []
    start = 0.0
    for part, seconds in times.seconds.items():
        if seconds <= 0:
            continue
        share = seconds / times.total
        label = "train and all else" if part == "productive" and times.ledger is None else part
        meaning = "all of the run that is not told apart" if label != part else MEANINGS[part]
        width = 1000 * share
        parts.append(
            TimePart(part, label, duration(seconds), f"{share:.1%}", round(start, 2), round(width, 2), meaning)
        )
        start += width
    told = ", ".join(f"{part.label} {part.seconds} ({part.share})" for part in parts)
    attempts = None if times.ledger is None else attempts_shown(times.ledger)
    return Times(name, f"{duration(times.total)} in all: {told}", parts, attempts)


def number(value: float | None, form: str) -> str:
    """A number, or a dash for one that is not known."""
    return NOTHING if value is None else form.format(value)


def origin(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[RunGroup]:
    """Logs, configuration, data and code of the runs."""
    columns = list(names) if len(runs) > 1 else []
    yield RunGroup("Log", columns, _side_by_side([_of_log(run) for run in runs]))
    yield RunGroup("Configuration", columns, _side_by_side([settings(run) for run in runs]))
    yield RunGroup("Data and checkpoint", columns, _side_by_side([_inputs(run) for run in runs]))
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


def _inputs(run: RecordedRun) -> dict[str, object]:
    """MD5 by the name of what the run read."""
    return {name: "no manifest" if digest is None else f"MD5 {digest}" for name, digest in run.digests.items()}
