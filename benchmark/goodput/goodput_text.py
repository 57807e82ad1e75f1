"""``goodput``: the ledger of a run as a table for people, or as JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmark.goodput.ledger import AttemptRow, GoodputLedger, as_utc, device_hours, read_ledger
from benchmark.goodput.time_kinds import MEANINGS
from benchmark.results.durations import duration
from benchmark.results.printable import shortened

NOTHING = "-"
MOST_LETTERS = 200
"""Of what is said about an attempt."""


def goodput(run_dir: Path, *, as_json: bool) -> str:
    """What the command prints. Raises InputError where there is no run to tell of."""
    ledger = read_ledger(run_dir)
    return json.dumps(ledger_as_json(ledger)) if as_json else format_ledger(ledger)


def format_ledger(ledger: GoodputLedger) -> str:
    return "\n".join([_headline(ledger), "", *_kinds(ledger), "", *_attempts(ledger), *_notes(ledger)])


def ledger_as_json(ledger: GoodputLedger) -> dict[str, Any]:
    """Seconds to the millisecond; ``seconds`` holds every kind, and adds up to ``whole_s``."""
    expected = ledger.expected
    return {
        "whole_s": ledger.whole_ms / 1000,
        "goodput": ledger.goodput,
        "goodput_without_queue": ledger.goodput_without_queue,
        "seconds": {kind: ms / 1000 for kind, ms in ledger.by_kind.items()},
        "steps": {"kept": ledger.steps_kept, "lost": ledger.steps_lost, "skipped": ledger.steps_skipped},
        "devices": ledger.devices,
        "device_hours_lost": ledger.device_hours_lost,
        "attempts": [_row_as_json(row, ledger.devices) for row in ledger.attempts],
        "expected": None
        if expected is None
        else {"goodput": expected.goodput, "failures": expected.failures, **vars(expected.run)},
        "remarks": list(ledger.remarks),
    }


def _row_as_json(row: AttemptRow, devices: int | None) -> dict[str, Any]:
    cause = row.cause
    return {
        "attempt": row.name,
        "begun_s": None if row.begun_ms is None else row.begun_ms / 1000,
        "ended_s": None if row.ended_ms is None else row.ended_ms / 1000,
        "kind": row.kind,
        "rank": None if cause is None else cause.rank,
        "host": None if cause is None else cause.host,
        "phase": None if cause is None else cause.phase,
        "message": None if cause is None else cause.message,
        "action": row.action or None,
        "reason": row.reason or None,
        "steps": row.steps,
        "steps_lost": row.steps_lost,
        "lost_s": row.cost_ms / 1000,
        "queue_after_s": row.queued_ms / 1000,
        "device_hours_lost": device_hours(row.cost_ms, devices),
        "seconds": {kind: ms / 1000 for kind, ms in row.by_kind.items()},
    }


def share(part: float | None) -> str:
    return NOTHING if part is None else f"{part:.1%}"


def headline(ledger: GoodputLedger) -> str:
    """The run's goodput in a sentence."""
    queue = "" if not ledger.by_kind["queue"] else f", {share(ledger.goodput_without_queue)} without the queue"
    return f"goodput {share(ledger.goodput)} of {duration(ledger.whole_ms / 1000)}{queue}"


def where(row: AttemptRow) -> str:
    """On which rank and host, in which phase."""
    cause = row.cause
    if cause is None:
        return ""
    rank = "" if cause.rank is None else f"rank {cause.rank}"
    host = "" if not cause.host else f"on {shortened(cause.host, 40)}"
    phase = "" if not cause.phase else f"in {shortened(cause.phase, 20)}"
    return " ".join(part for part in (rank, host, phase) if part)


def words(row: AttemptRow) -> str:
    """What is said about the end of an attempt: the launcher's line, which has the first error in it, or that alone."""
    error = "" if row.cause is None else f"{where(row)}: {row.kind}: {row.cause.message}"
    return shortened(row.reason or error, MOST_LETTERS)


def totals(ledger: GoodputLedger) -> str:
    """What was lost in all, in a sentence."""
    attempts = len(ledger.attempts)
    skipped = f", {ledger.steps_skipped:,} skipped" if ledger.steps_skipped else ""
    hours = ledger.device_hours_lost
    lost = "" if not hours else f"; {hours:,.3g} device hours lost on {ledger.devices:,} devices"
    return (
        f"{attempts} attempt{'' if attempts == 1 else 's'}, {ledger.steps_kept:,} steps kept, "
        f"{ledger.steps_lost:,} lost{skipped}{lost}"
    )


def expected_words(ledger: GoodputLedger) -> str | None:
    """What to expect at the run's own rate of failures, in a sentence."""
    expected = ledger.expected
    if expected is None:
        return None
    run = expected.run
    interval = "step" if run.save_steps == 1 else f"{run.save_steps:,} steps"
    return (
        f"expected at this failure rate: {share(expected.goodput)} without the queue ({expected.failures} failures, "
        f"one every {duration(run.mtbf_s)}; restarts of {duration(run.restart_s)}, a checkpoint every "
        f"{interval} of {duration(run.step_s)})"
    )


def _headline(ledger: GoodputLedger) -> str:
    return f"{headline(ledger)}: {totals(ledger)}"


def _kinds(ledger: GoodputLedger) -> Iterator[str]:
    yield f"  {'time':12}{'':>12}{'share':>8}"
    for kind, ms in ledger.by_kind.items():
        if ms:
            yield f"  {kind:12}{duration(ms / 1000):>12}{share(ms / ledger.whole_ms):>8}  {MEANINGS[kind]}"
    yield f"  {'whole':12}{duration(ledger.whole_ms / 1000):>12}{share(1.0):>8}"


def _attempts(ledger: GoodputLedger) -> Iterator[str]:
    names = max([7, *(len(shortened(row.name, 40)) for row in ledger.attempts)])
    head = f"{'ended':20}  {'how':15}  {'steps':>6}  {'lost':>5}  {'cost':>9}  decided"
    yield f"  {'attempt':{names}}  {head}"
    for row in ledger.attempts:
        ended = NOTHING if row.ended_ms is None else as_utc(row.ended_ms)
        cost = duration(row.cost_ms / 1000) if row.cost_ms else NOTHING
        line = (
            f"  {shortened(row.name, 40):{names}}  {ended:20}  {shortened(row.kind, 15):15}  {row.steps:6,}  "
            f"{row.steps_lost:5,}  {cost:>9}  {shortened(row.action, 20)}"
        )
        yield line.rstrip()
        if words(row):
            yield f"  {'':{names}}  {words(row)}"


def _notes(ledger: GoodputLedger) -> Iterator[str]:
    told = expected_words(ledger)
    found = [*([] if told is None else [told]), *ledger.remarks]
    if found:
        yield ""
        yield from (f"  {line}" for line in found)
