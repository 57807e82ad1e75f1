"""The tables of a report: runs, evaluations, times, origin."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmark.report.comparing.system_rows import day_of, description_rows
from benchmark.report.goodput_figure import attempts_shown
from benchmark.report.page_model import RunGroup, RunRow, TimePart, Times
from benchmark.report.page_numbers import NOTHING, number, perplexity
from benchmark.report.reported_run import ReportedRun
from benchmark.report.timeline import Timeline
from benchmark.results.durations import duration
from benchmark.results.printable import shortened
from benchmark.results.recorded_run import RecordedRun, settings
from benchmark.results_table.row_facts import SystemFacts
from benchmark.status.time_kinds import MEANINGS

MOST_COLUMNS = 12
"""Of a table that has one for each run: more cannot be read."""
MOST_VALUES = 4
MOST_TEXT = 500


def run_row(run: ReportedRun, colours: int) -> RunRow:
    """One run's row of the first table."""
    summary = run.recorded.summary
    last = summary.evaluations[-1].log_perplexity if summary.evaluations else None
    return RunRow(
        run.name,
        run.system,
        run.group if colours else None,
        day_of(summary.run_start_ms),
        ", ".join(map(str, summary.seeds)) or NOTHING,
        number(summary.minutes, "{:.2f}"),
        number(summary.trained_tokens, "{:,.0f}"),
        perplexity(last, run.recorded.target),
        summary.status or NOTHING,
        summary.evaluations,
    )


def evaluations_by_tokens(runs: Sequence[RecordedRun]) -> list[tuple[str, list[str]]]:
    """Rows by tokens, columns by run; none where there would be too many columns."""
    if len(runs) > MOST_COLUMNS:
        return []
    table: dict[float, dict[int, float]] = {}
    for place, run in enumerate(runs):
        for one in run.summary.evaluations:
            if one.tokens is not None and one.log_perplexity is not None:
                table.setdefault(one.tokens, {})[place] = one.log_perplexity
    return [
        (
            number(tokens, "{:,.0f}"),
            [perplexity(table[tokens].get(place), run.target) for place, run in enumerate(runs)],
        )
        for tokens in sorted(table)
    ]


def times_of(times: Timeline, name: str, longest: float) -> Times:
    """The bar of one run's time on the scale of the longest, in seconds, and its parts in words."""
    parts: list[TimePart] = []
    start = 0.0
    for part, seconds in times.seconds.items():
        if seconds <= 0:
            continue
        share = seconds / times.total
        label = "train and all else" if part == "productive" and times.ledger is None else part
        meaning = "all of the run that is not told apart" if label != part else MEANINGS[part]
        width = 1000 * seconds / longest
        parts.append(
            TimePart(part, label, duration(seconds), f"{share:.1%}", round(start, 2), round(width, 2), meaning)
        )
        start += width
    told = ", ".join(f"{part.label} {part.seconds} ({part.share})" for part in parts)
    attempts = None if times.ledger is None else attempts_shown(times.ledger)
    total = duration(times.total)
    return Times(name, f"{total} in all: {told}", total, parts, attempts)


def origin(runs: Sequence[ReportedRun], systems: Sequence[SystemFacts], names: Sequence[str]) -> Iterator[RunGroup]:
    """System, logs, configuration, data and code: a column per run, or per system where there are several."""
    several = len(systems) > 1
    columns = list(names) if several else [run.name for run in runs] if len(runs) > 1 else []
    yield RunGroup("System", list(names) if several else [], description_rows(systems))
    tables: tuple[tuple[str, Callable[[RecordedRun], Mapping[str, object]]], ...] = (
        ("Log", _of_log),
        ("Configuration", settings),
        ("Data and checkpoint", _inputs),
        ("Code and environment", lambda run: run.environment),
    )
    for title, told in tables:
        found = [told(run.recorded) for run in runs]
        if several:
            found = [
                _together([found[n] for n, run in enumerate(runs) if run.system == one]) for one in range(len(systems))
            ]
        yield RunGroup(title, columns, _side_by_side(found))


def _together(tables: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """What several runs of a system say: each value once."""
    names = dict.fromkeys(name for table in tables for name in table)
    told = {name: list(dict.fromkeys(str(table[name]) for table in tables if name in table)) for name in names}
    return {
        name: "; ".join(values[:MOST_VALUES]) + (" …" if len(values) > MOST_VALUES else "")
        for name, values in told.items()
    }


def _side_by_side(tables: Sequence[Mapping[str, object]]) -> list[tuple[str, list[str]]]:
    rows: dict[str, None] = {name: None for table in tables for name in table}
    return [(name, [shortened(str(table.get(name, NOTHING)), MOST_TEXT) for table in tables]) for name in rows]


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
