"""What to do when an attempt at a run has ended: nothing more, start again, hand back to the queue, or give up.

A run is given up where starting again cannot help: bad input; the same error twice at the same step; no progress in
several attempts. It is told in one summary, which names host, rank, step and the first error.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmark.supervision.attempt_folder import (
    AttemptEnd,
    AttemptStart,
    all_attempts,
    read_end,
    read_start,
    write_end,
)
from benchmark.supervision.incidents import Incident, did_not_arrive, first_cause, read_incidents
from benchmark.supervision.stop_note import StopNote, read_stop_note
from stage.json_files import UNREADABLE, read_json

Action = Literal["done", "again", "requeue", "stop"]

NO_PROGRESS = 5
"""Attempts in a row that did not get beyond the checkpoint they began at, after which a run is given up."""
SAVED = 75
"""Exit status of a run that was interrupted and saved."""
REFUSED = 2
"""Exit status for bad input."""
OWN_FAULTS = ("exception", "check", "out of memory")
"""Kinds that come again for the same reason if they come again at the same step."""
HARDWARE_FAULTS = ("device", "killed", "hang", "disk")
"""Kinds for which a machine is left out where there are spare ones: at once for a device, else at the second time."""


@dataclass(frozen=True)
class Decision:
    action: Action
    status: int
    """Exit status for whoever started the run."""
    reason: str
    """One line for people."""
    exclude: tuple[str, ...] = ()
    """Hosts to leave out from now on."""
    known: bool = True
    """Some process or watchdog said what went wrong."""


@dataclass(frozen=True)
class PastAttempt:
    """What is left of an attempt."""

    start: AttemptStart | None
    end: AttemptEnd | None
    cause: Incident | None
    hanging: tuple[Incident, ...]

    @property
    def resumed_at(self) -> int:
        """Optimizer steps it began at; -1 for the initial checkpoint."""
        return -1 if self.start is None or self.start.resumed_at is None else self.start.resumed_at


def past_attempt(folder: Path) -> PastAttempt:
    incidents = read_incidents(folder)
    hanging = tuple(did_not_arrive([one for one in incidents if one.kind == "hang"]))
    return PastAttempt(read_start(folder), read_end(folder), first_cause(incidents), hanging)


def decide(
    run_dir: Path,
    status: int,
    *,
    saved_steps: int | None,
    spare_hosts: int = 0,
    down_hosts: Sequence[str] = (),
) -> Decision:
    """Decide after an attempt that ended with ``status``.

    ``saved_steps``: of the newest checkpoint. ``spare_hosts``: allocated beyond those the run needs, ``down_hosts``
    not counted. Fewer than 0 means that there are not enough.
    """
    if (ended := _ended(run_dir)) is not None:
        return ended
    attempts = [past_attempt(folder) for folder in all_attempts(run_dir)]
    last = attempts[-1] if attempts else PastAttempt(None, None, None, ())
    stopped = read_stop_note(run_dir)
    # Launchers that end the other processes may have another status. An older note was removed as the attempt began.
    if status == SAVED or (stopped is not None and last.start is not None and last.cause is None):
        return _saved(stopped)
    said, known = _words(last, status), last.cause is not None
    if last.cause is not None and last.cause.kind == "input":
        return Decision("stop", REFUSED, last.cause.message)
    if _refused_twice(attempts, status):
        return Decision(
            "stop", REFUSED, f"{said}, twice: an option or an input was refused, as its log says", known=False
        )
    if _same_again(attempts):
        return Decision("stop", status or 1, f"{said}; the same error came twice at the same step: given up")
    if _stuck(attempts, saved_steps):
        return Decision("stop", status or 1, f"{said}; no progress in {NO_PROGRESS} attempts: given up", known=known)
    exclude = _excluded(attempts, spare_hosts, down_hosts)
    if spare_hosts < 0:
        return Decision("requeue", SAVED, f"{said}; too few machines are left, back to the queue", exclude, known)
    where = f"from step {saved_steps} on" if saved_steps is not None else "from the initial checkpoint"
    without = f", without {', '.join(exclude)}" if exclude else ""
    return Decision("again", status or 1, f"{said}; starting again {where}{without}", exclude, known)


def decide_and_note(run_dir: Path, status: int, **facts: Any) -> Decision:
    """Decide, and leave it in the folder of the newest attempt; arguments as of :func:`decide`."""
    decision = decide(run_dir, status, **facts)
    attempts = all_attempts(run_dir)
    if attempts:
        end = AttemptEnd(time.time(), status, decision.action, decision.reason, decision.exclude)
        write_end(attempts[-1], end)
    return decision


def _ended(run_dir: Path) -> Decision | None:
    """The decision where the run left its summary: it has ended by itself."""
    try:
        status = read_json(run_dir / "summary.json", dict)["status"]
    except UNREADABLE:
        return None
    return Decision("done", 0 if status in ("success", "completed") else 1, f"the run has ended: {status}")


def _saved(note: StopNote | None) -> Decision:
    """After an interruption: back to the queue, unless a person asked for the end."""
    by = "interrupted" if note is None else note.by
    if by == "exit trigger":
        return Decision("stop", SAVED, f"{_state(note)}, as the file 'exit' in the run folder asked")
    if by == "rollback":
        return Decision("again", SAVED, "rolled back; starting again")
    return Decision("requeue", SAVED, f"{_state(note)}: {by}")


def _state(note: StopNote | None) -> str:
    return "stopped, and not saved" if note is not None and not note.saved else "saved and stopped"


def _words(attempt: PastAttempt, status: int) -> str:
    if attempt.cause is None:
        return f"the processes ended with status {status} and left no word"
    more = [f"{one.rank} on {one.host}" for one in attempt.hanging if one != attempt.cause]
    also = f" (nor did rank {', '.join(more[:8])}{' ...' if len(more) > 8 else ''} arrive)" if more else ""
    return attempt.cause.line() + also


def _refused_twice(attempts: Sequence[PastAttempt], status: int) -> bool:
    """Bad input that ended two attempts before a process could leave a word, as an unknown option does."""
    if len(attempts) < 2 or status != REFUSED or any(attempt.cause is not None for attempt in attempts[-2:]):
        return False
    before = attempts[-2].end
    return before is not None and before.status == REFUSED


def _same_again(attempts: Sequence[PastAttempt]) -> bool:
    causes = [attempt.cause for attempt in attempts[-2:]]
    if len(causes) < 2 or any(cause is None or cause.kind not in OWN_FAULTS for cause in causes):
        return False
    return len({(cause.kind, cause.message, cause.steps) for cause in causes if cause is not None}) == 1


def _stuck(attempts: Sequence[PastAttempt], saved_steps: int | None) -> bool:
    latest = attempts[-NO_PROGRESS:]
    saved = -1 if saved_steps is None else saved_steps
    failed = [attempt.end is None or attempt.end.status not in (0, SAVED) for attempt in latest]
    fruitless = [attempt.start is None or saved <= attempt.resumed_at for attempt in latest]
    return len(latest) == NO_PROGRESS and all(failed) and all(fruitless)


def _excluded(attempts: Sequence[PastAttempt], spare_hosts: int, down_hosts: Sequence[str]) -> tuple[str, ...]:
    """Hosts left out before, those that are down, and the one that is at fault, as far as the spare ones go."""
    before = [host for attempt in attempts[-2:] if attempt.end is not None for host in attempt.end.exclude]
    found = dict.fromkeys([*before, *down_hosts])
    suspect = _suspect(attempts)
    if suspect is not None and suspect not in found and spare_hosts > 0:
        found[suspect] = None
    return tuple(found)


def _suspect(attempts: Sequence[PastAttempt]) -> str | None:
    """The host of the last fault, if that was a device's or the second on it in a row."""
    causes = [attempt.cause for attempt in attempts[-2:] if attempt.cause is not None]
    if not causes or causes[-1].kind not in HARDWARE_FAULTS:
        return None
    twice = len(causes) == 2 and causes[0].kind in HARDWARE_FAULTS and causes[0].host == causes[1].host
    return causes[-1].host if causes[-1].kind == "device" or twice else None
