"""Decide what to do when an attempt at a run has ended: nothing, start again, hand back to the queue, or give up.

A run is given up when starting again cannot help: bad input; the same error twice at the same step; no progress in
several attempts. One line gives the reason: host, rank, step and the first error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.run_record.attempt_folder import AttemptEnding, AttemptStart, all_attempts, read_ending, read_start
from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.endings import ENDINGS, Action, StopNote, finished_status
from benchmark.run_record.file_names import STOP_NOTE_FILE, attempt_path
from benchmark.run_record.incidents import Incident, did_not_arrive, first_cause, read_incidents
from benchmark.run_record.small_files import read_record

SUCCESS, BAD_INPUT = ENDINGS["success"].exit_status, ENDINGS["bad input"].exit_status
INTERRUPTED = ENDINGS["interrupted"].exit_status
UNTOLD = ENDINGS["failed"].exit_status
"""A process that ends with this status has written why. If there is no word of it, the disk did not take it."""
NO_PROGRESS = 5
"""Attempts in a row without a newer checkpoint after which a run is given up."""
OWN_FAULTS = ("exception", "check", "out of memory")
"""Kinds of incidents that have the same cause if they occur again at the same step."""
HARDWARE_FAULTS = ("device", "killed", "hang", "disk", "input")
"""Kinds of incidents after which the machine is left out, if there are spare ones: a device's at once, others at the
second time."""


@dataclass(frozen=True)
class Decision:
    action: Action
    status: int
    """Exit status for the caller."""
    reason: str
    """Reason in one line for people."""
    exclude: tuple[str, ...] = ()
    """Hosts to leave out from now on."""
    is_explained: bool = True
    """True if some process or watchdog reported the cause."""


@dataclass(frozen=True)
class AttemptOutcome:
    """The launcher's knowledge of an attempt that has ended."""

    attempt: str
    status: int
    ordered: str | None = None
    """The order that told the launcher to stop, such as "SIGTERM"; None if there was none."""
    follows: bool = False
    """True if the attempts before this one were started by the same command of a person."""
    spare_hosts: int = 0
    """Hosts allocated beyond those the run needs, without ``down_hosts``; below 0 if hosts are missing."""
    down_hosts: tuple[str, ...] = ()
    """Hosts that do not answer."""
    refusal: str = ""
    """Reason for which a machine starts no process of a run that has begun; empty if it started them."""


@dataclass(frozen=True)
class PastAttempt:
    """The records of a past attempt."""

    start: AttemptStart | None
    end: AttemptEnding | None
    cause: Incident | None
    hanging: tuple[Incident, ...]

    @property
    def refusal(self) -> Incident | None:
        """Return the cause if a process refused its input."""
        return self.cause if self.cause is not None and self.cause.kind == "input" else None

    @property
    def resumed_at(self) -> int:
        """Optimizer steps that the attempt began at; -1 for the initial checkpoint."""
        return -1 if self.start is None or self.start.resumed_at is None else self.start.resumed_at


def past_attempt(folder: Path) -> PastAttempt:
    incidents = read_incidents(folder)
    hanging = tuple(did_not_arrive([incident for incident in incidents if incident.kind == "hang"]))
    return PastAttempt(read_start(folder), read_ending(folder), first_cause(incidents), hanging)


def decide(run_dir: Path, outcome: AttemptOutcome) -> Decision:
    """Decide after an attempt, from the files that its processes left in its folder and in the run's."""
    if (end_status := finished_status(run_dir)) is not None:
        return of_ended_run(end_status)
    attempts, saved = _until(run_dir, outcome.attempt), newest_checkpoint(run_dir)
    attempt, status, no_progress = attempts[-1], outcome.status, f"; no progress in {NO_PROGRESS} attempts"
    if outcome.refusal:
        if _stuck(attempts, saved):
            return Decision("stop", status, f"{outcome.refusal}{no_progress}: given up")
        return Decision("requeue", INTERRUPTED, f"{outcome.refusal}; back to the queue")
    stopped = read_record(run_dir / STOP_NOTE_FILE, StopNote)
    # A launcher that ends the other processes may see another status. The run removed an older note as it began.
    if status == INTERRUPTED or (stopped is not None and attempt.start is not None and attempt.cause is None):
        return _interrupted(stopped, outcome)
    failure = _words(attempt, outcome)

    def after_failure(action: Action, status: int, consequence: str, exclude: tuple[str, ...] = ()) -> Decision:
        return Decision(action, status, f"{failure}{consequence}", exclude, is_explained=attempt.cause is not None)

    if outcome.ordered:  # they failed on the way out
        return after_failure("requeue", INTERRUPTED, f"; stopped by {outcome.ordered}, and not saved")
    refusal = attempt.refusal
    if refusal is not None and not _was_accepted(attempts, outcome):
        return Decision(ENDINGS["bad input"].action, BAD_INPUT, refusal.message)
    if _refused_twice(attempts, status):
        return after_failure(ENDINGS["bad input"].action, BAD_INPUT, ", twice: an option or an input was refused")
    if _same_again(attempts):
        return after_failure("stop", status or 1, "; the same error came twice at the same step: given up")
    if _stuck(attempts, saved):
        if status == UNTOLD if attempt.cause is None else attempt.cause.kind == "disk":
            return after_failure("requeue", INTERRUPTED, f"{no_progress}: back to the queue, until the disk works")
        return after_failure("stop", status or 1, f"{no_progress}: given up")
    exclude = _excluded(attempts, outcome)
    if outcome.spare_hosts < 0:
        return after_failure("requeue", INTERRUPTED, "; too few nodes are left, back to the queue", exclude)
    if refusal is not None and attempts[-2].refusal is not None and refusal.host not in exclude:
        return after_failure("requeue", INTERRUPTED, "; it was accepted before, back to the queue")
    where = f"from step {saved} on" if saved is not None else "from the initial checkpoint"
    without = f", without {', '.join(exclude)}" if exclude else ""
    return after_failure(ENDINGS["failed"].action, status or 1, f"; starting again {where}{without}", exclude)


def of_ended_run(end_status: str) -> Decision:
    """Return the decision about a run whose summary has this status."""
    ending = ENDINGS["success" if end_status in ("success", "completed") else "target not reached"]
    return Decision(ending.action, ending.exit_status, f"the run has ended: {end_status}")


def _until(run_dir: Path, attempt: str) -> list[PastAttempt]:
    """Return the attempt and the NO_PROGRESS ones before it.

    Later ones belong to another job and do not count. Neither do attempts up to one after which the run was given up or
    stopped: a person has started it again.
    """
    latest = attempt_path(run_dir, attempt)
    folders = all_attempts(run_dir)
    earlier = folders[: folders.index(latest)] if latest in folders else []
    past = [past_attempt(folder) for folder in earlier[-NO_PROGRESS:]]
    stops = [index for index, attempt in enumerate(past, 1) if attempt.end is not None and attempt.end.action == "stop"]
    return [*past[stops[-1] if stops else 0 :], past_attempt(latest)]


def _interrupted(note: StopNote | None, outcome: AttemptOutcome) -> Decision:
    """Decide after an interruption: back to the queue, unless a person asked for the end, or nobody for anything."""
    order = outcome.ordered or ("a signal" if note is None else note.by)
    state = "stopped, and not saved" if note is not None and not note.saved else "saved and stopped"
    if note is not None and note.by == "exit trigger":
        return Decision("stop", INTERRUPTED, f"{state}, as the file 'exit' in the run folder asked")
    if note is not None and note.by == "signal SIGTERM" and not outcome.ordered and outcome.spare_hosts >= 0:
        lost = f"; {_lost(outcome)}" if outcome.down_hosts else ""
        cause = "the processes got SIGTERM, but this job got none, as when srun loses a part of its step"
        return Decision("again", INTERRUPTED, f"{state}: {cause}{lost}; starting again", outcome.down_hosts)
    return Decision(ENDINGS["interrupted"].action, INTERRUPTED, f"{state}: {order}")


def _lost(outcome: AttemptOutcome) -> str:
    plural = len(outcome.down_hosts) > 1
    return f"node{'s' * plural} {', '.join(outcome.down_hosts)} {'are' if plural else 'is'} lost"


def _words(attempt: PastAttempt, outcome: AttemptOutcome) -> str:
    """Describe the failure. A lost node comes first: the incidents are those of ranks that lost it as their partner."""
    lost = f"{_lost(outcome)}: " if outcome.down_hosts else ""
    if attempt.cause is None and outcome.down_hosts:  # its processes may live: srun's status says nothing of them
        return f"{lost}no process left a word"
    if attempt.cause is None:
        return f"the processes ended with status {outcome.status} and left no word"
    missing_ranks = [f"{incident.rank} on {incident.host}" for incident in attempt.hanging if incident != attempt.cause]
    names = ", ".join(missing_ranks[:8]) + (" ..." if len(missing_ranks) > 8 else "")
    return lost + attempt.cause.line() + (f" (nor did rank {names} arrive)" if missing_ranks else "")


def _was_accepted(attempts: Sequence[PastAttempt], outcome: AttemptOutcome) -> bool:
    """Return whether an attempt with the same options began to train: its input was good. A refusal now may pass, as of
    a folder that is away for a while, or comes from a machine, as one whose device is gone."""
    return outcome.follows and any(past.start is not None and past.refusal is None for past in attempts[:-1])


def _refused_twice(attempts: Sequence[PastAttempt], status: int) -> bool:
    """Return whether bad input, such as an unknown option, ended two attempts before a process could report it."""
    if len(attempts) < 2 or status != BAD_INPUT or any(attempt.cause is not None for attempt in attempts[-2:]):
        return False
    ending = attempts[-2].end
    return ending is not None and ending.status == BAD_INPUT


def _same_again(attempts: Sequence[PastAttempt]) -> bool:
    causes = [attempt.cause for attempt in attempts[-2:]]
    own = [cause for cause in causes if cause is not None and _is_own_fault(cause)]
    return len(own) == 2 and len({(cause.kind, cause.message, cause.steps) for cause in own}) == 1


def _is_own_fault(cause: Incident) -> bool:
    """Return whether an incident has the same cause if it occurs again at the same step. Input that is refused before
    any step, as where a device or a folder is missing, may be good on the next machine."""
    return cause.kind in OWN_FAULTS or (cause.kind == "input" and cause.steps is not None)


def _stuck(attempts: Sequence[PastAttempt], saved: int | None) -> bool:
    latest = attempts[-NO_PROGRESS:]
    failed = [attempt.end is None or attempt.end.status not in (SUCCESS, INTERRUPTED) for attempt in latest]
    fruitless = [attempt.start is None or (-1 if saved is None else saved) <= attempt.resumed_at for attempt in latest]
    return len(latest) == NO_PROGRESS and all(failed) and all(fruitless)


def _excluded(attempts: Sequence[PastAttempt], outcome: AttemptOutcome) -> tuple[str, ...]:
    """Return the hosts to leave out: earlier ones, hosts that are down, and a suspect while there are spare hosts."""
    excluded_hosts = [host for attempt in attempts[-2:] if attempt.end is not None for host in attempt.end.exclude]
    hosts = dict.fromkeys([*excluded_hosts, *outcome.down_hosts])
    suspect = _suspect(attempts)
    if suspect is not None and suspect not in hosts and outcome.spare_hosts > 0:
        hosts[suspect] = None
    return tuple(hosts)


def _suspect(attempts: Sequence[PastAttempt]) -> str | None:
    """Return the host of the last fault, if that was a device's or the second in a row on that host."""
    causes = [attempt.cause for attempt in attempts[-2:] if attempt.cause is not None]
    if not causes or causes[-1].kind not in HARDWARE_FAULTS:
        return None
    twice = len(causes) == 2 and causes[0].kind in HARDWARE_FAULTS and causes[0].host == causes[1].host
    return causes[-1].host if causes[-1].kind == "device" or twice else None
