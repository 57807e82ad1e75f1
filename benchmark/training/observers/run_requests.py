"""What a run is asked for while it trains: to save, or to stop, by a signal, a file or its time limit."""

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.launch.endings import RunEnd
from benchmark.machine.run_environment import seconds_since_process_start
from benchmark.training.observer import Observer
from benchmark.training.step_flags import StepFlags

LOOK_S = 2.0
"""Between looks for the files."""
SAVE_FILE, EXIT_FILE = "save", "exit"

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""From Slurm, torchrun and kill; from Ctrl-C; from a terminal that is closed."""

Handler = Callable[[int, Any], Any] | int | None


class RunRequests(Observer):
    """Requests to this process. The processes agree on them in each step (step_flags.py).

    SIGUSR1 saves, SIGUSR2 saves and stops, SIGTERM, Ctrl-C, a closed terminal and the time limit stop;
    ``touch RUN_DIR/save`` and ``touch RUN_DIR/exit`` likewise. A request stays until it is met.
    """

    def __init__(self, time_limit_s: float | None = None) -> None:
        self._time_limit_s = time_limit_s
        self._signals: set[int] = set()
        self._before: dict[int, Handler] = {}
        self._files: TriggerFiles | None = None

    def __enter__(self) -> "RunRequests":
        """Take SIGUSR1 and SIGUSR2 from now on: by default they would end the process."""
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            self._take(number)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._files is not None:
            self._files.close()

    def obey_stops(self, run_dir: Path | None) -> None:
        """From now on what asks for the end stops the run in good order; before, processes wait for each other, and a
        signal ends this one. A signal that this process was started to ignore, as by nohup, stays ignored.

        ``run_dir``: where files are looked for, on one of the processes.
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
        """What asked for a checkpoint until now is met."""
        self._signals.discard(signal.SIGUSR1)
        if self._files is not None:
            self._files.saved()

    def end(self, end: RunEnd) -> None:
        """The file that asked for the end goes, so that the next start is not stopped by it."""
        if end.ending == "interrupted" and self._files is not None:
            self._files.exited()

    def _take(self, number: int) -> None:
        self._before[number] = signal.signal(number, lambda *_: self._signals.add(number))


class TriggerFiles:
    """Looks for the files ``save`` and ``exit`` in a thread: a file system that hangs does not reach training.

    Those that are there already count: somebody asked while nothing ran.
    """

    def __init__(self, run_dir: Path) -> None:
        self._save, self._exit = run_dir / SAVE_FILE, run_dir / EXIT_FILE
        self._lock = threading.Lock()
        self._save_seen: tuple[int, int] | None = None
        self._save_met: tuple[int, int] | None = None
        """Which file was met: one that cannot be removed asks only once."""
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
        """The thread ends by itself; one that hangs in the file system is left there."""
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
    """Which file this is, and when it was touched; None where there is none, or it cannot be told."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
