"""Divide the time of the runs into its parts, and show it, attempt by attempt, with the causes of slowness.

The ``events.jsonl`` of a run has all parts, over all its attempts (benchmark/run_record/status/). A published log has
the initialisation, and evaluations with a start and a stop; all further time counts as training. Unknown parts are left
out instead of shown as zero.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmark.judging.report.judgement import ReportedRun
from benchmark.judging.report.page_parts import NOTHING, Bar, BarPart, Cell, Row, Section, Table, Words
from benchmark.judging.results.recorded_run import RecordedRun
from benchmark.run_record.events.recorded_events import RecordedEvent
from benchmark.run_record.status.run_status import RunStatus, as_utc, device_hours, headline, totals, words
from benchmark.run_record.status.status_reading import read_status
from benchmark.run_record.status.wall_time import MEANINGS, TimeKind
from foundation.plain_text import shortened
from foundation.sizes import duration, significant

MOST_BARS = 12
"""Most runs that have a bar each; with more runs, the middle run of each system has one."""
MOST_LEGENDS = 3
"""Most bars that have a legend each, with times."""
CELLS = 500
"""Number of cells in the ribbon: a stretch shorter than a cell does not show, unless it fills most of the cell."""
WIDTH = 1000
MOST_ROWS = 200
"""Most attempts that are listed, the latest; and most findings of slowness, the first."""
MARKED_EVENTS = ("evaluation", "checkpoint", "restart")
SLOWNESS_EVENTS = ("slow_ranks", "device_health", "speed_change")
MOST_MARKS = 2000
"""Most marks of a kind below a figure: a figure is narrower."""
ATTEMPT_HEAD = ("Attempt", "Ended", "How", "Where", "Steps", "Lost", "Cost", "Device hours", "Decided")


@dataclass(frozen=True)
class Timeline:
    """The time of one run."""

    seconds: Mapping[TimeKind, float]
    """Seconds by part."""
    marks: Sequence[tuple[str, float]]
    """Ends of evaluations and checkpoints, and restarts: the kind of each, and minutes since run_start."""
    ledger: RunStatus | None = None
    """Ledger of the run; None for a log alone, whose productive time includes all parts that the log does not
    separate."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def timeline(run: RecordedRun) -> Timeline:
    """Return the parts of the time of ``run``."""
    summary, start = run.summary, run.summary.run_start_ms
    if run.events.of("step"):
        ledger = read_status(run.path.parent, run.events)
        seconds = {kind: ms / 1000 for kind, ms in ledger.by_kind.items()}
        moments = [(kind, ms) for kind in MARKED_EVENTS for ms in run.events.of(kind)[-MOST_MARKS:].times_ms]
        moments.sort(key=lambda moment: moment[1])
    else:
        ledger, measured = None, {"init": summary.init_s, "evaluation": summary.evaluation_s}
        if summary.run_ms is not None:
            measured["productive"] = summary.run_ms / 1000 - (summary.evaluation_s or 0.0)
        parts: tuple[TimeKind, ...] = ("init", "productive", "evaluation")
        seconds = {kind: value for kind in parts if (value := measured.get(kind)) is not None}
        moments = [("evaluation", event.time_ms) for event in summary.evaluations]
        moments += [("restart", event.time_ms) for event in summary.restarts]
    return Timeline(seconds, [(kind, (ms - start) / 60_000) for kind, ms in moments if start is not None], ledger)


def time_section(runs: Sequence[ReportedRun], timelines: Sequence[Timeline]) -> Section | None:
    """Return a bar for each run on the scale of the longest, and the attempts of runs that had several.

    Many bars have one legend, and a table with the time of each part that is folded away.
    """
    timed_runs = [(run, times) for run, times in zip(runs, timelines, strict=True) if times.total > 0]
    if len(timed_runs) > MOST_BARS:
        timed_runs = [(run, times) for run, times in timed_runs if run.is_middle]
    if not timed_runs:
        return None
    longest = max(times.total for _, times in timed_runs)
    parts: list[Bar | Table | Words] = []
    many = len(timed_runs) > MOST_LEGENDS
    for run, times in timed_runs:
        bar = time_bar(times, run.name if len(timed_runs) > 1 else "", longest, meanings=not parts)
        if many:
            bar = replace(bar, legend=[] if parts else _shared_legend([times for _, times in timed_runs]))
        parts.append(bar)
        if times.ledger is not None and not (many and _is_uneventful(times.ledger)):
            parts += attempts_shown(times.ledger)
    if many:
        parts.append(_table_of_parts(timed_runs))
    return Section("time", "Where the time went", parts)


def _shared_legend(timelines: Sequence[Timeline]) -> list[tuple[str, str, str, str, str]]:
    """Return the legend of many bars: each part that any of them has, without a time."""
    is_bare = all(times.ledger is None for times in timelines)
    kinds = [kind for kind in MEANINGS if any(times.seconds.get(kind, 0) > 0 for times in timelines)]
    labels = [_label(kind, is_bare=is_bare) for kind in kinds]
    return [(kind, label, "", "", meaning) for kind, (label, meaning) in zip(kinds, labels, strict=True)]


def _label(kind: TimeKind, *, is_bare: bool) -> tuple[str, str]:
    """Return the name of a part and its meaning; ``is_bare``: of a log alone."""
    if kind == "productive" and is_bare:
        return "train and all else", "training and all parts that the log does not separate"
    return kind, MEANINGS[kind]


def _table_of_parts(timed_runs: Sequence[tuple[ReportedRun, Timeline]]) -> Table:
    """Return a row per run with the time of each part."""
    kinds = [kind for kind in MEANINGS if any(times.seconds.get(kind, 0) > 0 for _, times in timed_runs)]
    rows = []
    for run, times in timed_runs:
        seconds = [times.seconds.get(kind, 0.0) for kind in kinds]
        cells = [
            Cell(duration(value), notes=[f"{value / times.total:.1%}"]) if value else Cell(NOTHING) for value in seconds
        ]
        rows.append(Row([Cell(run.name), *cells, Cell(duration(times.total))]))
    summary = f"Times of the {len(rows)} runs"
    head = ("Run", *(_label(kind, is_bare=timed_runs[0][1].ledger is None)[0] for kind in kinds), "All")
    return Table(summary, head, rows, numbers=range(1, len(head)), look="cards", summary=summary)


def time_bar(times: Timeline, name: str, longest: float, *, meanings: bool) -> Bar:
    """Return the bar of one run's time, and its parts in words."""
    parts, legend, start = [], [], 0.0
    for kind, seconds in times.seconds.items():
        if seconds <= 0:
            continue
        label, meaning = _label(kind, is_bare=times.ledger is None)
        time_text, share, width = duration(seconds), f"{seconds / times.total:.1%}", WIDTH * seconds / longest
        parts.append(BarPart(kind, round(start, 2), round(width, 2), f"{label}: {time_text}, {share}"))
        legend.append((kind, label, time_text, share, meaning if meanings else ""))
        start += width
    total = duration(times.total)
    text = f"{total} in all: " + ", ".join(f"{label} {time_text} ({share})" for _, label, time_text, share, _ in legend)
    return Bar(text, parts, title=name, total=total if name else "", legend=legend)


def _is_uneventful(ledger: RunStatus) -> bool:
    return len(ledger.attempts) < 2 and not any(row.failed for row in ledger.attempts) and not ledger.remarks


def attempts_shown(ledger: RunStatus) -> Iterator[Bar | Table | Words]:
    """Yield the goodput in a sentence; for a run with several attempts, or a failed one, also the time in its order."""
    yield Words(_as_sentence(f"{headline(ledger)}: {totals(ledger)}"))
    attempts = ledger.attempts
    if ledger.whole_ms and (len(attempts) > 1 or any(row.failed for row in attempts)):
        begin_ms, end_ms = ledger.begun_ms, ledger.begun_ms + ledger.whole_ms
        failed = [row.ended_ms for row in attempts[-MOST_ROWS:] if row.failed and row.ended_ms is not None]
        fates = "; ".join(f"{shortened(row.name, 40)} {shortened(row.kind, 40)}" for row in attempts[-MOST_ROWS:])
        yield Bar(
            f"The same time in its order, from {as_utc(begin_ms)} to {as_utc(end_ms)}. Attempts: {fates}",
            ribbon(ledger),
            title="In its order, with a line where an attempt failed",
            lines=[round(WIDTH * (time_ms - begin_ms) / ledger.whole_ms, 2) for time_ms in failed],
            ends=(as_utc(begin_ms), as_utc(end_ms)),
            look="ribbon",
        )
        yield Table("Attempts", ATTEMPT_HEAD, list(_attempt_rows(ledger)), numbers=(4, 5, 6, 7), look="attempts")
    yield from (Words(_as_sentence(remark), quiet=True) for remark in ledger.remarks)


def ribbon(ledger: RunStatus) -> list[BarPart]:
    """Return the time in its order, in cells of equal length; each cell shows the kind that fills most of it."""
    run_begin_ms, size_ms = ledger.begun_ms, ledger.whole_ms / CELLS
    cells: list[dict[tuple[int, TimeKind], float]] = [{} for _ in range(CELLS)]
    for mark in ledger.marks:
        begin_ms = mark.time_ms - mark.ms
        for cell in range(int((begin_ms - run_begin_ms) / size_ms), CELLS):
            low, high = run_begin_ms + cell * size_ms, run_begin_ms + (cell + 1) * size_ms
            if low >= mark.time_ms:
                break
            common_ms, key = min(high, mark.time_ms) - max(low, begin_ms), (mark.attempt, mark.kind)
            if common_ms > 0:
                cells[cell][key] = cells[cell].get(key, 0.0) + common_ms
    main_kinds = [max(cell, key=cell.__getitem__) for cell in cells]
    parts: list[BarPart] = []
    begin = 0
    for cell in range(1, CELLS + 1):
        if cell == CELLS or main_kinds[cell] != main_kinds[begin]:
            attempt, kind = main_kinds[begin]
            about = duration((cell - begin) * size_ms / 1000)
            title = f"attempt {shortened(ledger.attempts[attempt].name, 40)}: {kind}, about {about}"
            scale = WIDTH / CELLS
            parts.append(BarPart(kind, begin * scale, (cell - begin) * scale, title))
            begin = cell
    return parts


def _attempt_rows(ledger: RunStatus) -> Iterator[Row]:
    for row in ledger.attempts[-MOST_ROWS:]:
        hours = device_hours(row.cost_ms, ledger.devices)
        cells = (
            shortened(row.name, 40),
            NOTHING if row.ended_ms is None else as_utc(row.ended_ms),
            shortened(row.kind, 40),
            row.where or NOTHING,
            f"{row.steps:,}",
            f"{row.steps_lost:,}",
            duration(row.cost_ms / 1000) if row.cost_ms else NOTHING,
            significant(hours, 3) if hours else NOTHING,
            shortened(row.action, 20) or NOTHING,
        )
        kinds = {2: "bad" if row.failed else "good"}
        yield Row([Cell(text, kind=kinds.get(column, "")) for column, text in enumerate(cells)])
        if words(row):
            yield Row([Cell("", notes=[words(row)])], look="words")


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def slowness_section(runs: Sequence[ReportedRun]) -> Section | None:
    """Return the slowness that the runs noted in their events: slow ranks, devices that turned bad, throughput that
    dropped."""
    has_run_column = len(runs) > 1
    rows = [
        Row([Cell(text) for text in (*([run.name] if has_run_column else []), *row)])
        for run in runs
        for event in run.recorded.events.of(*SLOWNESS_EVENTS)[:MOST_ROWS]
        for row in slowness_of(event)
    ]
    head = (*(["Run"] if has_run_column else []), "Step", "Where", "Found")
    table = Table("What slowed it", head, rows[:MOST_ROWS], numbers=(int(has_run_column),), look="")
    return Section("slowness", "What slowed it", [table]) if rows else None


def slowness_of(event: RecordedEvent) -> Iterator[tuple[str, str, str]]:
    """Yield the step, the ranks, and the slowness."""
    fields = event.fields
    if event.key == "slow_ranks":
        step, slow, recovered = _form(fields.get("steps"), "{:,}"), fields.get("slow"), fields.get("recovered")
        for slow_rank in slow if isinstance(slow, list) else []:
            if isinstance(slow_rank, dict):
                excess = _form(slow_rank.get("excess"), "{:.0%}")
                block, peers = (_form(slow_rank.get(name), "{:.4g} s") for name in ("block_s", "peers_block_s"))
                health = f"; {slow_rank['health']}" if slow_rank.get("health") else ""
                yield (
                    step,
                    _rank_words(slow_rank),
                    f"computes {excess} slower: {block} a block, its peers {peers}{health}",
                )
        for rank in recovered if isinstance(recovered, list) else []:
            yield step, f"rank {_form(rank, '{:,}')}", "computes as fast as its peers again"
    elif event.key == "device_health":
        yield "", _rank_words(fields), str(fields.get("found", ""))
    elif event.key == "speed_change":
        new_s, old_s = (_form(fields.get(name), "{:.4g} s") for name in ("now_s", "before_s"))
        kind = "steps are fast again" if fields.get("kind_of_change") == "recovery" else "steps became slower"
        yield _form(fields.get("since"), "{:,}"), "all ranks", f"{kind}: {new_s}, {old_s} before"


def _rank_words(fields: Mapping[str, Any]) -> str:
    device = fields.get("device")
    gpu = "" if device is None else f" GPU {_form(device, '{:,}')}"
    return f"rank {_form(fields.get('rank'), '{:,}')} on {fields.get('host', '?')}{gpu}"


def _form(value: Any, form: str) -> str:
    return form.format(value) if isinstance(value, int | float) else "?"
