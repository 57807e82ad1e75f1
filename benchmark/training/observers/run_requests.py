"""Requests that a run receives while it trains: to save, or to stop, by a signal, a file or its time limit."""

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.launch.endings import RunEnd
from benchmark.machine.run_environment import seconds_since_process_start
from benchmark.training.observer import Observer
from benchmark.training.step import StepFlags

LOOK_S = 2.0
"""Seconds between looks for the files."""
SAVE_FILE, EXIT_FILE = "save", "exit"

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that stop the run: SIGTERM from Slurm, torchrun and kill; SIGINT from Ctrl-C; SIGHUP from a terminal that is
closed."""

Handler = Callable[[int, Any], Any] | int | None


class RunRequests(Observer):
    """Collect the requests to this process. The processes agree on them in each step (step.py).

    SIGUSR1 and ``touch RUN_DIR/save`` save a checkpoint. SIGUSR2, SIGTERM, Ctrl-C, a closed terminal, the time limit
    and ``touch RUN_DIR/exit`` save one and stop the run. A request stays until it is met.
    """

    def __init__(self, time_limit_s: float | None = None) -> None:
        self._time_limit_s = time_limit_s
        self._signals: set[int] = set()
        self._before: dict[int, Handler] = {}
        self._files: TriggerFiles | None = None

    def __enter__(self) -> "RunRequests":
        """Handle SIGUSR1 and SIGUSR2 from now on: by default they would end the process."""
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            self._take(number)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._files is not None:
            self._files.close()

    def obey_stops(self, run_dir: Path | None) -> None:
        """From now on, stop the run in good order when a signal or the file ``exit`` asks for it.

        Earlier, processes wait for each other, and a signal ends this one. A signal that this process was started to
        ignore, for example by nohup, stays ignored. ``run_dir``: the folder where the files are looked for, on one of
        the processes.
        """
        for number in STOPS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._take(number)
        if run_dir is not None:
            self._files = TriggerFiles(run_dir)

    def before_step(self) -> StepFlags:
        late = self._time_limit_s is not None and seconds_since_process_start() > self._time_limit_s
        files = self._files
        return StepFlags(
            save=signal.SIGUSR1 in self._signals or (files is not None and files.save_asked()),
            exit_trigger=files is not None and files.exit_asked(),
            sigusr2=signal.SIGUSR2 in self._signals,
            sigterm=not self._signals.isdisjoint(STOPS),
            time_limit=late,
        )

    def about_to_save(self) -> None:
        """Forget the requests for a checkpoint that came until now: this checkpoint meets them."""
        self._signals.discard(signal.SIGUSR1)
        if self._files is not None:
            self._files.saved()

    def end(self, end: RunEnd) -> None:
        """Remove the file ``exit``, so that it does not stop the next start."""
        if end.ending == "interrupted" and self._files is not None:
            self._files.exited()

    def _take(self, number: int) -> None:
        self._before[number] = signal.signal(number, lambda *_: self._signals.add(number))


class TriggerFiles:
    """Look for the files ``save`` and ``exit`` in a thread, so that a file system that hangs does not stop training.

    Files that exist at the start count: somebody made a request while nothing ran.
    """

    def __init__(self, run_dir: Path) -> None:
        self._save, self._exit = run_dir / SAVE_FILE, run_dir / EXIT_FILE
        self._lock = threading.Lock()
        self._save_seen: tuple[int, int] | None = None
        self._save_met: tuple[int, int] | None = None
        """Identity of the save file that was met last: a file that cannot be removed asks only once."""
        self._exit_seen = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trigger files", daemon=True)
        self._thread.start()

    def save_asked(self) -> bool:
        return self._save_seen is not None

    def exit_asked(self) -> bool:
        return self._exit_seen

    def saved(self) -> None:
        with self._lock:
            if self._save_seen is not None:
                self._save_met, self._save_seen = self._save_seen, None

    def exited(self) -> None:
        if self._exit_seen:
            with contextlib.suppress(OSError):
                self._exit.unlink(missing_ok=True)

    def close(self) -> None:
        """Ask the thread to end; it is not waited for if it hangs in the file system."""
        self._closing.set()
        self._thread.join(0.1)

    def _watch(self) -> None:
        while True:
            self._look()
            if self._closing.wait(LOOK_S):
                self._look()
                return

    def _look(self) -> None:
        found = _identity(self._save)
        with self._lock:
            met = found is not None and found == self._save_met
            if not met:
                self._save_seen = found
        if met:
            with contextlib.suppress(OSError):
                self._save.unlink(missing_ok=True)
        self._exit_seen = self._exit_seen or _identity(self._exit) is not None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the file's inode and modification time; None if there is no file or its status cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
