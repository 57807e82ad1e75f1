"""A run's attempts over the wall time, as the report draws and lists them."""

from benchmark.report.page_model import AttemptLine, AttemptsShown, RibbonPart
from benchmark.results.durations import duration
from benchmark.results.printable import shortened
from benchmark.status.run_status import AttemptRow, RunStatus, as_utc, device_hours
from benchmark.status.status_text import headline, totals, words
from benchmark.status.time_kinds import Kind

CELLS = 500
"""Of the ribbon: what is shorter than one does not show, unless it is most of it."""
WIDTH = 1000
"""Of the ribbon, in its own units."""
NOTHING = "\N{EN DASH}"


def attempts_shown(ledger: RunStatus) -> AttemptsShown:
    """Ribbon and table are empty for a run of one attempt that did not fail: the shares say it all."""
    notes = [_as_sentence(one) for one in ledger.remarks]
    text = _as_sentence(f"{headline(ledger)}: {totals(ledger)}")
    plain = len(ledger.attempts) < 2 and not any(row.failed for row in ledger.attempts)
    if plain or not ledger.whole_ms:
        return AttemptsShown(text, "", "", "", (), (), (), notes)
    first, last = ledger.spans[0].begin_ms, ledger.spans[-1].end_ms
    fates = "; ".join(f"{shortened(row.name, 40)} {shortened(row.kind, 40)}" for row in ledger.attempts)
    failed = [row.ended_ms for row in ledger.attempts if row.failed and row.ended_ms is not None]
    return AttemptsShown(
        text,
        as_utc(first),
        as_utc(last),
        f"The same time in its order, from {as_utc(first)} to {as_utc(last)}. Attempts: {fates}",
        ribbon(ledger),
        [round(WIDTH * (time_ms - first) / ledger.whole_ms, 2) for time_ms in failed],
        [_line(row, ledger.devices) for row in ledger.attempts],
        notes,
    )


def ribbon(ledger: RunStatus) -> list[RibbonPart]:
    """The time in its order, in cells of equal length: each of the kind that most of it was of."""
    first, size_ms = ledger.spans[0].begin_ms, ledger.whole_ms / CELLS
    cells: list[dict[tuple[int, Kind], float]] = [{} for _ in range(CELLS)]
    for span in ledger.spans:
        for place in range(int((span.begin_ms - first) / size_ms), CELLS):
            low, high = first + place * size_ms, first + (place + 1) * size_ms
            if low >= span.end_ms:
                break
            both, key = min(high, span.end_ms) - max(low, span.begin_ms), (span.attempt, span.kind)
            cells[place][key] = cells[place].get(key, 0.0) + both
    most = [max(cell, key=cell.__getitem__) for cell in cells]
    parts: list[RibbonPart] = []
    begin = 0
    for place in range(1, CELLS + 1):
        if place == CELLS or most[place] != most[begin]:
            attempt, kind = most[begin]
            about = duration((place - begin) * size_ms / 1000)
            title = f"attempt {shortened(ledger.attempts[attempt].name, 40)}: {kind}, about {about}"
            scale = WIDTH / CELLS
            parts.append(RibbonPart(kind, begin * scale, (place - begin) * scale, title))
            begin = place
    return parts


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _line(row: AttemptRow, devices: int | None) -> AttemptLine:
    hours = device_hours(row.cost_ms, devices)
    return AttemptLine(
        name=shortened(row.name, 40),
        ended=NOTHING if row.ended_ms is None else as_utc(row.ended_ms),
        kind="bad" if row.failed else "good",
        how=shortened(row.kind, 40),
        where=row.where or NOTHING,
        steps=f"{row.steps:,}",
        lost=f"{row.steps_lost:,}",
        cost=duration(row.cost_ms / 1000) if row.cost_ms else NOTHING,
        hours=NOTHING if not hours else f"{hours:,.3g}",
        decided=shortened(row.action, 20) or NOTHING,
        said=words(row),
    )
