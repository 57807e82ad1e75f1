"""Start a run again until it has ended or cannot go on, on one machine and in a Slurm job alike."""

from __future__ import annotations

import fcntl
import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from benchmark.launch.next_attempt import INTERRUPTED, AttemptOutcome, Decision, decide
from benchmark.run_record.attempt_folder import AttemptEnding, make_run_folder, new_attempt, write_ending
from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.endings import finished_status
from benchmark.run_record.file_names import EXIT_REQUEST, LAUNCHER_FILE, LAUNCHER_LOG, attempt_path
from benchmark.run_record.incidents import NATIVE
from benchmark.run_record.run_completion import complete_run
from benchmark.run_record.small_files import Answer, StoppedWaiting, wait_for

SHOWN_LINES = 20
PAUSES_S = (0.0, 1.0, 5.0, 20.0)
"""Pauses before the next attempt, by the number of attempts in a row that saved nothing new: a disk or a network that
is away for a while must not use up all attempts."""
DISK_S = 1800.0
"""Seconds that a folder that could be used before may give errors."""


class Refused(Exception):
    """A launch that is refused until a person mends it: one line, exit status 2."""


class RunMachines:
    """The place where the processes of a run are started. Methods that are not overridden fit a single machine."""

    name: str
    """Name of the launcher's place, noted in the run folder: "job 45", "process 123"."""
    ordered: str | None = None
    """The order that told this launcher to stop, such as "SIGTERM"; None if there was none."""

    def runs(self, holder: str, *, holds_lock: bool) -> bool:
        """Return whether the place named in the folder still runs; ``holds_lock``: somebody holds the folder's lock."""
        return holds_lock

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

    def may_start_again(self) -> bool:
        """Return whether there is time for another attempt."""
        return True


def say(text: str) -> None:
    """Print a line for people; a closed terminal does not stop the launcher."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="backslashreplace"))  # may be called within a signal's handler


@contextmanager
def alone_in(run_dir: Path, machines: RunMachines) -> Iterator[None]:
    """Hold the run's folder against other launchers until the end of the block.

    Raises Refused if its run has ended or another launcher runs in it, or if a new folder cannot be made. A folder that
    held a run before is waited for. On a file system without locks only Slurm knows of the other launcher.
    """
    with patiently(lambda: _open_launcher_file(run_dir), machines) as file:
        is_locked = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_locked = True
        except OSError:
            pass  # a file system without locks
        holder = patiently(lambda: _first_line(file), machines)
        if holder != machines.name and machines.runs(holder, holds_lock=is_locked):
            raise Refused(f"{run_dir}: {holder or 'a launcher'} runs there; end it first, or choose another folder")
        patiently(lambda: complete_run(run_dir), machines)
        if (status := patiently(lambda: finished_status(run_dir), machines)) is not None:
            raise Refused(f"{run_dir}: holds a finished run ({status}); choose another folder")
        patiently(lambda: _note_holder(file, machines.name), machines)
        yield


def _open_launcher_file(run_dir: Path) -> TextIO:
    """Raises Refused for a folder that cannot be made, and OSError for a folder that exists or may exist."""
    try:
        make_run_folder(run_dir)
        return (run_dir / LAUNCHER_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        if _held_no_run(run_dir):
            raise Refused(f"{error.filename}: {error.strerror}; choose another folder for the run") from None
        raise


def _held_no_run(run_dir: Path) -> bool:
    try:
        (run_dir / LAUNCHER_FILE).stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return True
    except OSError:
        return False  # the disk does not say
    return False


def _first_line(file: TextIO) -> str:
    file.seek(0)
    return file.readline(1000).strip()


def _note_holder(file: TextIO, name: str) -> None:
    file.truncate(0)
    file.write(f"{name}\n")
    file.flush()


def keep_running(run_dir: Path, machines: RunMachines) -> Decision:
    """Start attempts until no more is to be started; return the last decision. Prints a line for each failed
    attempt.

    A run folder that gives no answer for DISK_S sends the run back to the queue.
    """
    try:
        return _attempts(run_dir, machines)
    except StoppedWaiting:
        return Decision("requeue", INTERRUPTED, f"stopped by {machines.ordered}")
    except OSError as error:
        reason = f"{error.filename}: {error.strerror} for {DISK_S / 60:g} minutes; back to the queue"
        say(f"error: {reason}")
        return Decision("requeue", INTERRUPTED, reason)


def _attempts(run_dir: Path, machines: RunMachines) -> Decision:
    """Start attempts; return the last decision. Raises OSError and StoppedWaiting of :func:`patiently`."""
    fruitless, follows = 0, False
    saved = patiently(lambda: newest_checkpoint(run_dir), machines)
    exclude: tuple[str, ...] = ()
    while True:
        stop = patiently(lambda: _asked_before(run_dir, machines), machines) or machines.choose(exclude)
        if stop is not None:
            return stop
        attempt = patiently(lambda: new_attempt(run_dir), machines)
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
        if decision.action == "again" and (machines.ordered or not machines.may_start_again()):
            return Decision("requeue", INTERRUPTED, decision.reason, decision.exclude)
        if decision.action != "again":
            return decision
        fruitless, saved, follows, exclude = 0 if newest != saved else fruitless + 1, newest, True, decision.exclude
        time.sleep(PAUSES_S[min(max(0, fruitless - 1), len(PAUSES_S) - 1)])


def _settle(run_dir: Path, ended: AttemptOutcome) -> tuple[Decision, int | None]:
    """Decide, record the decision in the attempt's folder, and return it with the newest checkpoint's steps.

    Raises OSError.
    """
    complete_run(run_dir)
    decision = decide(run_dir, ended)
    end = AttemptEnding(time.time(), ended.status, decision.action, decision.reason, decision.exclude)
    write_ending(attempt_path(run_dir, ended.attempt), end)
    return decision, newest_checkpoint(run_dir)


def _asked_before(run_dir: Path, machines: RunMachines) -> Decision | None:
    """Return the decision to stop before the next attempt begins, because of an order or the file ``exit``; else
    None."""
    if machines.ordered:
        return Decision("requeue", INTERRUPTED, f"stopped by {machines.ordered}")
    asked = run_dir / EXIT_REQUEST
    if asked.exists():
        say(f"not started: {asked} is there (and is removed now)")
        asked.unlink()
        return Decision("stop", INTERRUPTED, "as the file 'exit' in the run folder asked")
    return None


def patiently(act: Callable[[], Answer], machines: RunMachines) -> Answer:
    """Call ``act``, which uses the run's folder; while the disk gives an error, wait and try again.

    Raises StoppedWaiting if an order to stop came before the disk was back, and the OSError after DISK_S.
    """
    return wait_for(act, DISK_S, say, is_ordered=lambda: machines.ordered, answers=())


def _what_matters(log: Path) -> str:
    """Return the lines to show for an attempt whose failure nobody explained.

    They are the errors about bad input, each once, or else the last lines of the log.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return f"{log}: {error.strerror}"
    refusals = dict.fromkeys(line for line in lines if line.startswith("error: "))
    return NATIVE.sub("", "\n".join(list(refusals or lines)[-SHOWN_LINES:]))


def environment_of(attempt: str, launch: str) -> dict[str, Any]:
    """Return the variables by which a launcher tells the processes their attempt and launch."""
    return {"ATTEMPT": attempt, "LAUNCH_ID": launch, "LAUNCHED_S": f"{time.time():.3f}"}
