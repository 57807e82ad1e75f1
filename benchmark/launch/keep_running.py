"""Start a run again until it has ended or cannot go on, on one machine and in a Slurm job alike."""

from __future__ import annotations

import errno
import functools
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.launch.next_attempt import BAD_INPUT, INTERRUPTED, AttemptOutcome, Decision, decide, of_ended_run
from benchmark.run_record.attempt_folder import (
    AttemptEnding,
    all_attempts,
    make_run_folder,
    new_attempt,
    read_ending,
    read_start,
    write_ending,
)
from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.endings import finished_status
from benchmark.run_record.file_names import EXIT_REQUEST, LAUNCHER_LOG, attempt_path, attempts_folder
from benchmark.run_record.incidents import NATIVE
from benchmark.run_record.lease import MACHINE_S, RENEWALS, HeldLease, Lease, LeaseLost
from benchmark.run_record.run_completion import complete_run
from benchmark.run_record.small_files import Answer, StoppedWaiting, wait_for
from foundation.disk_answers import is_there

SHOWN_LINES = 20
PAUSES_S = (0.0, 1.0, 5.0, 20.0)
"""Pauses before the next attempt, by the number of attempts in a row that saved nothing new: a disk that is away for a
while must not use up all attempts."""
DISK_S = 1800.0
"""Seconds that a folder that could be used before may give errors."""
WRONG_FOLDER = frozenset(
    (
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.EACCES,
        errno.EROFS,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
    )
)
"""Errors that say that a folder cannot be made or used; any other error may pass."""


class Refused(Exception):
    """A launch that is refused until a person mends it: one line, exit status 2."""


class RunMachines:
    """The place where the processes of a run are started. Methods that are not overridden fit a single machine."""

    name: str
    """Name of the launcher's place, noted in the run folder: "job 45", "process 123"."""
    token: str = ""
    """Name of this launcher's lease; drawn at random where it is empty."""
    ordered: str | None = None
    """The order that told this launcher to stop, such as "SIGTERM"; None if there was none."""
    lease: HeldLease | None = None
    """The run's lease; None until :func:`keep_running` holds the run."""
    lease_s: float = MACHINE_S
    """Length of the lease."""
    goes_on: bool = False
    """Whether this launcher goes on with a run that an earlier one began, for the same order of a person."""
    may_leave_ranks: bool = False
    """Whether processes of the last attempt may run on, out of this launcher's reach."""

    @property
    def has_lost_lease(self) -> bool:
        """Return whether this launcher holds the run no more."""
        return self.lease is not None and self.lease.loss is not None

    def is_predecessor(self, lease: Lease) -> bool:
        """Return whether the lease is that of a launcher that is known to be dead."""
        return False

    def patience_s(self, lease: Lease) -> float:
        """Return for how many seconds this launcher waits for a holder that renews its lease."""
        return 0.0

    def prepare(self) -> None:
        """Do all that comes before the first attempt. Raises Refused, and the errors of :func:`patiently`."""

    def environment(self, attempt: str, launch: str) -> dict[str, Any]:
        """Return the variables by which the processes learn their attempt, their launch and their holder."""
        token = {} if self.lease is None else {"LEASE": self.lease.token}
        return {"ATTEMPT": attempt, "LAUNCH_ID": launch, "LAUNCHED_S": f"{time.time():.3f}", **token}

    def choose(self, exclude: tuple[str, ...]) -> Decision | None:
        """Choose the machines of the next attempt, preferring those not in ``exclude``.

        Returns the decision to hand back if there are too few machines.
        """
        return None

    def start(self, attempt: str, log: Path) -> int:
        """Start all processes, with their errors in ``log``, wait for their end and return the exit status."""
        raise NotImplementedError

    def look(self) -> tuple[int, tuple[str, ...]]:
        """Return, after an attempt, the number of spare hosts and the names of hosts that are down."""
        return 0, ()

    def time_is_up(self) -> bool:
        """Return whether there is no time for another attempt."""
        return False


def say(text: str) -> None:
    """Print a line for people; a closed terminal does not stop the launcher."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="backslashreplace"))  # may be called within a signal's handler


def keep_running(run_dir: Path, machines: RunMachines) -> Decision:
    """Start attempts until no more is to be started; return the last decision. Prints a line for each failed attempt.

    Raises Refused if the run has ended or another launcher holds it, and if a new folder cannot be made. A run folder
    that gives no answer for DISK_S sends the run back to the queue.
    """
    try:
        with _holding(run_dir, machines) as lease:
            patiently(lambda: complete_run(run_dir), machines)
            if (end_status := patiently(lambda: finished_status(run_dir), machines)) is not None:
                if not machines.goes_on:
                    raise Refused(f"{run_dir}: holds a finished run ({end_status}); choose another folder")
                decision = of_ended_run(end_status)
                say(decision.reason)
                return decision
            try:
                machines.prepare()
            except Refused as refusal:
                if not machines.goes_on or not patiently(lambda: any(map(read_start, all_attempts(run_dir))), machines):
                    raise
                return _refused(run_dir, machines, str(refusal))
            return _attempts(run_dir, machines, lease)
    except StoppedWaiting:
        return _stopped(machines)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror} for {DISK_S / 60:g} minutes; back to the queue"
    except LeaseLost as loss:
        if loss.successor is not None and not loss.successor.is_sentinel:
            raise Refused(f"{run_dir}: {loss}; this launcher stops") from None
        reason = f"{run_dir}: {loss}; back to the queue"
    say(f"error: {reason}")
    return Decision("requeue", INTERRUPTED, reason)


@contextmanager
def _holding(run_dir: Path, machines: RunMachines) -> Iterator[HeldLease]:
    """Hold the run's lease until the end of the block. Raises Refused, and the errors of :func:`patiently`."""
    patiently(lambda: _in_folder(run_dir, lambda: make_run_folder(run_dir), machines), machines)
    lease = HeldLease(run_dir, machines.name, machines.lease_s, machines.token or secrets.token_hex(8))
    _take(run_dir, lease, machines)
    try:
        machines.lease = lease
        yield lease
    finally:
        lease.leave(release=not machines.may_leave_ranks)


def _in_folder(run_dir: Path, act: Callable[[], Answer], machines: RunMachines) -> Answer:
    """Call ``act``. Raises Refused for a new folder that cannot be used, and for one of another user; OSError for an
    error that may pass, for a folder that holds or may hold a run, and where the run has begun before."""
    try:
        return act()
    except OSError as error:
        if error.errno in WRONG_FOLDER and not machines.goes_on and _held_no_own_run(run_dir):
            raise Refused(f"{error.filename}: {error.strerror}; choose another folder for the run") from None
        raise


def _held_no_own_run(run_dir: Path) -> bool:
    try:
        return attempts_folder(run_dir).stat().st_uid != os.geteuid()
    except OSError as error:  # of any other error the disk does not say
        return isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError))


def _take(run_dir: Path, lease: HeldLease, machines: RunMachines) -> None:
    """Take the lease; wait for a holder that renews its own as long as the machines have patience."""

    def is_free(rival: Lease | None) -> bool:
        return rival is None or machines.is_predecessor(rival)

    renewed_s, is_announced = 0.0, False
    while not patiently(lambda: _in_folder(run_dir, lambda: lease.try_to_take(is_free), machines), machines):
        rival = lease.watch.lease
        if rival is not None and not is_announced:
            is_announced = True
            limit = f"it is waited for until it has not renewed its lease for {rival.length_s:g} s"
            say(f"{run_dir}: {rival.line()} holds the run; {limit}")
        renewed_s = renewed_s or (time.monotonic() if lease.watch.renewals else 0.0)
        if rival is not None and renewed_s and time.monotonic() - renewed_s >= machines.patience_s(rival):
            if rival.holder == machines.name:
                raise OSError(errno.EBUSY, f"{rival.line()} holds the run", str(run_dir))
            raise Refused(f"{run_dir}: {rival.line()} runs there; end it first, or choose another folder")
        if machines.ordered:
            raise StoppedWaiting
        time.sleep(lease.watch.length_s / RENEWALS)


def _attempts(run_dir: Path, machines: RunMachines, lease: HeldLease) -> Decision:
    """Start attempts; return the last decision. Raises the errors of :func:`patiently`."""
    fruitless, follows = 0, machines.goes_on
    saved = patiently(lambda: newest_checkpoint(run_dir), machines)
    exclude: tuple[str, ...] = ()
    while True:
        stop = patiently(lambda: _asked_before(run_dir, machines), machines) or machines.choose(exclude)
        if stop is not None:
            return stop
        attempt = patiently(lambda: new_attempt(run_dir), machines)
        patiently(functools.partial(lease.begin, attempt), machines)
        log = attempt_path(run_dir, attempt) / LAUNCHER_LOG
        exit_status = machines.start(attempt, log)
        spare, down = (0, ()) if machines.ordered == "SIGTERM" else machines.look()
        outcome = AttemptOutcome(attempt, exit_status, machines.ordered, follows, spare, down)
        decision, newest = patiently(functools.partial(_settle, run_dir, outcome), machines)
        if not decision.is_explained and (words := _what_matters(log)):
            say(words)
        if decision.action == "stop" and decision.status != INTERRUPTED:
            say(f"error: {decision.reason}")
        else:
            say(f"attempt {attempt}: {decision.reason}")
        if decision.action == "again" and (machines.ordered or machines.time_is_up()):
            return Decision("requeue", INTERRUPTED, decision.reason, decision.exclude)
        if decision.action != "again":
            return decision
        fruitless, saved, follows, exclude = 0 if newest != saved else fruitless + 1, newest, True, decision.exclude
        time.sleep(PAUSES_S[min(max(0, fruitless - 1), len(PAUSES_S) - 1)])


def _refused(run_dir: Path, machines: RunMachines, refusal: str) -> Decision:
    """Decide about a run that was accepted before; the refusal counts as an attempt. Raises the errors of
    :func:`patiently`."""
    attempt = patiently(lambda: new_attempt(run_dir), machines)
    outcome = AttemptOutcome(attempt, BAD_INPUT, refusal=refusal)
    decision, _ = patiently(functools.partial(_settle, run_dir, outcome), machines)
    say(f"error: {decision.reason}")
    return decision


def _settle(run_dir: Path, ended: AttemptOutcome) -> tuple[Decision, int | None]:
    """Decide, record the decision, and return it with the newest checkpoint's steps. Raises OSError."""
    complete_run(run_dir)
    decision = decide(run_dir, ended)
    end = AttemptEnding(time.time(), ended.status, decision.action, decision.reason, decision.exclude)
    write_ending(attempt_path(run_dir, ended.attempt), end)
    return decision, newest_checkpoint(run_dir)


def note_stop(run_dir: Path) -> None:
    """Note in the last attempt's folder that the run goes on only when a person starts it again."""
    with suppress(OSError):
        attempts = all_attempts(run_dir)
        ending = read_ending(attempts[-1]) if attempts else None
        if ending is not None:
            write_ending(attempts[-1], replace(ending, action="stop", status=INTERRUPTED))


def _asked_before(run_dir: Path, machines: RunMachines) -> Decision | None:
    """Return the decision to start no attempt, because of an order or the file ``exit``; else None."""
    if machines.ordered:
        return _stopped(machines)
    request = run_dir / EXIT_REQUEST
    if not is_there(request):
        return None
    say(f"not started: {request} is there (and is removed now)")
    request.unlink()
    return Decision("stop", INTERRUPTED, "as the file 'exit' in the run folder asked")


def patiently(act: Callable[[], Answer], machines: RunMachines) -> Answer:
    """Call ``act``, which uses the run's folder, again while the disk gives an error or the lease is not renewed.

    Raises StoppedWaiting if an order to stop came or the time was up first, the OSError after DISK_S, and LeaseLost.
    """

    def act_as_holder() -> Answer:
        if machines.lease is not None:
            machines.lease.require()
        return act()

    return wait_for(
        act_as_holder, DISK_S, say, is_ordered=lambda: machines.ordered or machines.time_is_up(), answers=()
    )


def _stopped(machines: RunMachines) -> Decision:
    return Decision("requeue", INTERRUPTED, f"stopped by {machines.ordered or 'the end of its time'}")


def _what_matters(log: Path) -> str:
    """Return the lines to show for an unexplained failure: errors about bad input, or else the log's last lines."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"{log}: {error.strerror}"
    refusals = dict.fromkeys(line for line in lines if line.startswith("error: "))
    return NATIVE.sub("", "\n".join(list(refusals or lines)[-SHOWN_LINES:]))
