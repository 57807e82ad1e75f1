"""``status``: describe one run for people, several as a table, or either as JSON."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from benchmark.run_record.file_names import EVENTS_FILE, attempts_folder
from benchmark.run_record.status.run_status import (
    AttemptRow,
    RunStatus,
    as_utc,
    device_hours,
    headline,
    share,
    totals,
    words,
)
from benchmark.run_record.status.status_reading import read_status
from benchmark.run_record.status.wall_time import MEANINGS
from foundation.errors import InputError
from foundation.plain_text import PAGE_COLUMNS, folded, screen_width, shortened, table_text
from foundation.sizes import duration, significant

NOTHING = "-"
FOLLOW_S = 5.0
COLUMNS = ("run", "state", "step", "loss", "s/step", "MFU", "checkpoint", "attempts", "goodput", "expected end")
ABOVE = {0: "{}", 1: "{}", 9: "expected end {}"}
"""Columns that stand above the others on a narrow screen."""


class AttemptForm(TypedDict):
    """An attempt in the output of ``--json``; None stands for a fact that is not known."""

    attempt: str
    begun_s: float | None
    ended_s: float | None
    kind: str
    where: str | None
    reason: str | None
    action: str | None
    steps: int
    steps_lost: int
    lost_s: float
    device_hours_lost: float | None
    seconds: dict[str, float]


class StatusForm(TypedDict):
    """A run in the output of ``--json`` (docs/schemas/status.json); None stands for a fact that is not known."""

    run_dir: str
    state: str
    step: int | None
    loss: float | None
    log_perplexity: float | None
    step_s: float | None
    tokens_per_s: float | None
    mfu: float | None
    precision: str | None
    checkpoint: int | None
    devices: int | None
    steps_at_most: int | None
    expected_end_s: float | None
    heard_s: float | None
    whole_s: float
    goodput: float | None
    goodput_without_queue: float | None
    seconds: dict[str, float]
    steps: dict[str, int]
    device_hours_lost: float | None
    attempts: list[AttemptForm]
    remarks: list[str]


def status(paths: Sequence[Path], *, as_json: bool, follow: bool) -> None:
    """Print the status of the runs; with ``follow``, again every few seconds until no run goes on any more.

    Raises InputError if there is no run, and OSError if the disk does not say; ``follow`` waits for the disk.
    """
    ended: dict[Path, RunStatus] = {}
    while True:
        try:
            runs = [ended.get(folder) or read_status(folder) for folder in run_folders(paths)]
        except OSError as error:
            if not follow:
                raise
            print(f"{error.filename}: {error.strerror}; tried again", file=sys.stderr, flush=True)
        else:
            ended = {run.run_dir: run for run in runs if run.has_ended}
            print(json.dumps(_as_json(runs)) if as_json else _text(runs), flush=True)
            if not (follow and any(run.goes_on for run in runs)):
                return
        time.sleep(FOLLOW_S)


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the given run folders, and those one level below other folders. Raises InputError if there is none."""
    folders = []
    for path in paths:
        if len(paths) > 1 and not path.exists():
            print(f"{path}: no run there", file=sys.stderr)
        entries = sorted(path.iterdir()) if path.is_dir() and not _is_run(path) else [path]
        folders += [folder for folder in entries if _is_run(folder)]
    if not folders:
        raise InputError(f"{', '.join(map(str, paths))}: expected the folder of a run, or a folder of such folders")
    return folders


def _is_run(path: Path) -> bool:
    return (path / EVENTS_FILE).is_file() or attempts_folder(path).is_dir()


def _text(runs: Sequence[RunStatus]) -> str:
    if len(runs) == 1:
        heading, *lines = _page(runs[0])
        return "\n".join((heading, *map(folded, lines)))  # a path is not folded
    names = distinct_names([run.run_dir for run in runs])
    return table_text(
        COLUMNS, [_cells(run, name) for run, name in zip(runs, names, strict=True)], right=(), above=ABOVE
    )


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """Return the last parts of the paths, as many as tell them apart."""
    parts = [folder.absolute().parts for folder in folders]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-count:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _cells(run: RunStatus, name: str = "") -> tuple[str, ...]:
    of = "" if run.steps is None else f"/{run.steps}"
    end = NOTHING if run.expected_end_s is None else as_utc(1000 * run.expected_end_s)
    return (
        shortened(name, 30),
        shortened(run.state, 20),
        NOTHING if run.step is None else f"{run.step}{of}",
        NOTHING if run.loss is None else f"{run.loss:.4f}",
        NOTHING if run.step_s is None else significant(run.step_s, 3),
        share(run.mfu),
        NOTHING if run.checkpoint is None else str(run.checkpoint),
        str(len(run.attempts)),
        share(run.goodput),
        end,
    )


def _page(run: RunStatus) -> Iterator[str]:
    cells = dict(zip(COLUMNS[1:], _cells(run)[1:], strict=True))
    rate = "" if run.tokens_per_s is None else f", {run.tokens_per_s:,.0f} tokens/s"
    mfu = "" if cells["MFU"] == NOTHING else f", MFU {cells['MFU']}"
    number_format = "" if run.precision is None else f" in {shortened(run.precision.upper(), 10)}"
    heard = "" if run.heard_s is None else f", last heard of at {as_utc(1000 * run.heard_s)}"
    quality = "" if run.log_perplexity is None else f", log perplexity {run.log_perplexity:.4f}"
    yield f"{run.run_dir}: {cells['state']}{heard}"
    yield f"  step {cells['step']}, loss {cells['loss']}{quality}; {cells['s/step']} s a step{number_format}{rate}{mfu}"
    expected = "" if cells["expected end"] == NOTHING else f"; the target is expected at {cells['expected end']}"
    yield f"  newest checkpoint after step {cells['checkpoint']}{expected}"
    yield f"  {headline(run)}: {totals(run)}"
    yield ""
    yield f"  {'time':12}{'':>12}{'share':>8}"
    for kind, ms in run.by_kind.items():
        if ms:
            yield f"  {kind:12}{duration(ms / 1000):>12}{share(ms / run.whole_ms):>8}  {MEANINGS[kind]}"
    yield ""
    rows = [_attempt_cells(row) for row in run.attempts]
    head = ("attempt", "ended", "how", "steps", "lost", "cost", "decided")
    table = table_text(head, rows, right=(3, 4, 5), width=min(PAGE_COLUMNS, screen_width()) - 2)
    yield from (f"  {line}" for line in table.split("\n"))
    yield from (f"  {line}" for line in run.remarks)


def _attempt_cells(row: AttemptRow) -> tuple[str, ...]:
    ended = NOTHING if row.ended_ms is None else as_utc(row.ended_ms)
    cost = duration(row.cost_ms / 1000) if row.cost_ms else NOTHING
    decided = ": ".join(filter(None, (shortened(row.action, 20), words(row))))
    figures = (f"{row.steps:,}", f"{row.steps_lost:,}", cost)
    return (shortened(row.name, 40), ended, shortened(row.kind, 15), *figures, decided)


def _as_json(runs: Sequence[RunStatus]) -> Any:
    """Return an object for one run, a list for several."""
    rows = [_run_as_json(run) for run in runs]
    return rows[0] if len(rows) == 1 else rows


def _run_as_json(run: RunStatus) -> StatusForm:
    """Return the status as JSON values; ``seconds`` holds every kind, and adds up to ``whole_s``."""
    return {
        "run_dir": str(run.run_dir),
        "state": run.state,
        "step": run.step,
        "loss": run.loss,
        "log_perplexity": run.log_perplexity,
        "step_s": run.step_s,
        "tokens_per_s": run.tokens_per_s,
        "mfu": run.mfu,
        "precision": run.precision,
        "checkpoint": run.checkpoint,
        "devices": run.devices,
        "steps_at_most": run.steps,
        "expected_end_s": run.expected_end_s,
        "heard_s": run.heard_s,
        "whole_s": run.whole_ms / 1000,
        "goodput": run.goodput,
        "goodput_without_queue": run.goodput_without_queue,
        "seconds": {kind: ms / 1000 for kind, ms in run.by_kind.items()},
        "steps": {"kept": run.steps_kept, "lost": run.steps_lost, "skipped": run.steps_skipped},
        "device_hours_lost": run.device_hours_lost,
        "attempts": [_row_as_json(row, run.devices) for row in run.attempts],
        "remarks": list(run.remarks),
    }


def _row_as_json(row: AttemptRow, devices: int | None) -> AttemptForm:
    return {
        "attempt": row.name,
        "begun_s": None if row.begun_ms is None else row.begun_ms / 1000,
        "ended_s": None if row.ended_ms is None else row.ended_ms / 1000,
        "kind": row.kind,
        "where": row.where or None,
        "reason": row.reason or None,
        "action": row.action or None,
        "steps": row.steps,
        "steps_lost": row.steps_lost,
        "lost_s": row.cost_ms / 1000,
        "device_hours_lost": device_hours(row.cost_ms, devices),
        "seconds": {kind: ms / 1000 for kind, ms in row.by_kind.items()},
    }
