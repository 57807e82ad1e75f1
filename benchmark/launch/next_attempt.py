"""What to do when an attempt at a run has ended: nothing more, start again, hand back to the queue, or give up.

A run is given up where starting again cannot help: bad input; the same error twice at the same step; no progress in
several attempts. One line says why: host, rank, step and the first error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.launch.attempt_folder import (
    AttemptEnd,
    AttemptStart,
    all_attempts,
    attempt_path,
    newest_saved,
    read_end,
    read_start,
)
from benchmark.launch.endings import ENDINGS, Action
from benchmark.launch.incidents import Incident, did_not_arrive, first_cause, read_incidents
from benchmark.launch.small_files import read_object
from benchmark.launch.stop_note import StopNote, read_stop_note

SUCCESS, BAD_INPUT = ENDINGS["success"].exit_status, ENDINGS["bad input"].exit_status
INTERRUPTED = ENDINGS["interrupted"].exit_status
NO_PROGRESS = 5
"""Attempts in a row that did not get beyond the checkpoint they began at, after which a run is given up."""
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
class Ended:
    """What the launcher knows of an attempt that has ended."""

    attempt: str
    status: int
    ordered: str | None = None
    """What told the launcher to stop, such as "SIGTERM"; None where nothing did."""
    follows: bool = False
    """The same launcher has started the attempt before it, too."""
    spare_hosts: int = 0
    """Allocated beyond those the run needs, ``down_hosts`` not counted; below 0: so many are missing."""
    down_hosts: tuple[str, ...] = ()
    """Hosts that do not answer."""


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


def decide(run_dir: Path, ended: Ended) -> Decision:
    """Decide after an attempt, from what its processes left in its folder and in the run's."""
    if (over := finished(run_dir)) is not None:
        end = ENDINGS["success" if over in ("success", "completed") else "target not reached"]
        return Decision(end.action, end.exit_status, f"the run has ended: {over}")
    attempts, saved = _until(run_dir, ended.attempt), newest_saved(run_dir)
    last, status = attempts[-1], ended.status
    stopped = read_stop_note(run_dir)
    # A launcher that ends the other processes may see another status. The run removed an older note as it began.
    if status == INTERRUPTED or (stopped is not None and last.start is not None and last.cause is None):
        return _interrupted(stopped, ended)
    said, known = _words(last, ended), last.cause is not None
    if ended.ordered:  # they failed on the way out
        return Decision("requeue", INTERRUPTED, f"{said}; stopped by {ended.ordered}, and not saved", known=known)
    if last.cause is not None and last.cause.kind == "input" and not _was_accepted(attempts, ended):
        return Decision(ENDINGS["bad input"].action, BAD_INPUT, last.cause.message)
    if _refused_twice(attempts, status):
        words = f"{said}, twice: an option or an input was refused, as its log says"
        return Decision(ENDINGS["bad input"].action, BAD_INPUT, words, known=False)
    if _same_again(attempts):
        return Decision("stop", status or 1, f"{said}; the same error came twice at the same step: given up")
    if _stuck(attempts, saved):
        return Decision("stop", status or 1, f"{said}; no progress in {NO_PROGRESS} attempts: given up", known=known)
    exclude = _excluded(attempts, ended)
    if ended.spare_hosts < 0:
        return Decision("requeue", INTERRUPTED, f"{said}; too few nodes are left, back to the queue", exclude, known)
    where = f"from step {saved} on" if saved is not None else "from the initial checkpoint"
    without = f", without {', '.join(exclude)}" if exclude else ""
    return Decision(ENDINGS["failed"].action, status or 1, f"{said}; starting again {where}{without}", exclude, known)


def finished(run_dir: Path) -> str | None:
    """The status with which the run has ended by itself; None of a run that has not."""
    summary = read_object(run_dir / "summary.json")
    return None if summary is None else str(summary.get("status"))


def _until(run_dir: Path, attempt: str) -> list[PastAttempt]:
    """The attempt and those before it: what another job does in the same folder is no business of this one."""
    own = attempt_path(run_dir, attempt)
    folders = all_attempts(run_dir)
    before = folders[: folders.index(own)] if own in folders else []
    return [past_attempt(folder) for folder in (*before[-NO_PROGRESS:], own)]


def _interrupted(note: StopNote | None, ended: Ended) -> Decision:
    """After an interruption: back to the queue, unless a person asked for the end or nobody asked for anything."""
    by = ended.ordered or ("a signal" if note is None else note.by)
    state = "stopped, and not saved" if note is not None and not note.saved else "saved and stopped"
    if note is not None and note.by == "exit trigger":
        return Decision("stop", INTERRUPTED, f"{state}, as the file 'exit' in the run folder asked")
    if note is not None and note.by == "signal SIGTERM" and not ended.ordered and ended.spare_hosts >= 0:
        lost = f"; {_lost(ended)}" if ended.down_hosts else ""
        told = f"{state}: the processes got SIGTERM, but this job got none, as when srun loses a part of its step{lost}"
        return Decision("again", INTERRUPTED, f"{told}; starting again", ended.down_hosts)
    return Decision(ENDINGS["interrupted"].action, INTERRUPTED, f"{state}: {by}")


def _lost(ended: Ended) -> str:
    plural = len(ended.down_hosts) > 1
    return f"node{'s' * plural} {', '.join(ended.down_hosts)} {'are' if plural else 'is'} lost"


def _words(attempt: PastAttempt, ended: Ended) -> str:
    """What went wrong; a node that is lost comes first, for the incidents are those of ranks that missed it."""
    lost = f"{_lost(ended)}: " if ended.down_hosts else ""
    if attempt.cause is None:
        return f"{lost}the processes ended with status {ended.status} and left no word"
    more = [f"{one.rank} on {one.host}" for one in attempt.hanging if one != attempt.cause]
    also = f" (nor did rank {', '.join(more[:8])}{' ...' if len(more) > 8 else ''} arrive)" if more else ""
    return lost + attempt.cause.line() + also


def _was_accepted(attempts: Sequence[PastAttempt], ended: Ended) -> bool:
    """Whether the attempt that this launcher started before began to train: then its input was good, and what refuses
    it now, as a folder that cannot be written for a while, may pass. It is tried once more."""
    if not ended.follows or len(attempts) < 2:
        return False
    before = attempts[-2]
    return before.start is not None and (before.cause is None or before.cause.kind != "input")


def _refused_twice(attempts: Sequence[PastAttempt], status: int) -> bool:
    """Bad input that ended two attempts before a process could leave a word, as an unknown option does."""
    if len(attempts) < 2 or status != BAD_INPUT or any(attempt.cause is not None for attempt in attempts[-2:]):
        return False
    before = attempts[-2].end
    return before is not None and before.status == BAD_INPUT


def _same_again(attempts: Sequence[PastAttempt]) -> bool:
    causes = [attempt.cause for attempt in attempts[-2:]]
    if len(causes) < 2 or any(cause is None or cause.kind not in OWN_FAULTS for cause in causes):
        return False
    return len({(cause.kind, cause.message, cause.steps) for cause in causes if cause is not None}) == 1


def _stuck(attempts: Sequence[PastAttempt], saved: int | None) -> bool:
    latest = attempts[-NO_PROGRESS:]
    failed = [attempt.end is None or attempt.end.status not in (SUCCESS, INTERRUPTED) for attempt in latest]
    fruitless = [attempt.start is None or (-1 if saved is None else saved) <= attempt.resumed_at for attempt in latest]
    return len(latest) == NO_PROGRESS and all(failed) and all(fruitless)


def _excluded(attempts: Sequence[PastAttempt], ended: Ended) -> tuple[str, ...]:
    """Hosts left out before, those that are down, and the one that is at fault, as far as the spare ones go."""
    before = [host for attempt in attempts[-2:] if attempt.end is not None for host in attempt.end.exclude]
    found = dict.fromkeys([*before, *ended.down_hosts])
    suspect = _suspect(attempts)
    if suspect is not None and suspect not in found and ended.spare_hosts > 0:
        found[suspect] = None
    return tuple(found)


def _suspect(attempts: Sequence[PastAttempt]) -> str | None:
    """The host of the last fault, if that was a device's or the second on it in a row."""
    causes = [attempt.cause for attempt in attempts[-2:] if attempt.cause is not None]
    if not causes or causes[-1].kind not in HARDWARE_FAULTS:
        return None
    twice = len(causes) == 2 and causes[0].kind in HARDWARE_FAULTS and causes[0].host == causes[1].host
    return causes[-1].host if causes[-1].kind == "device" or twice else None
