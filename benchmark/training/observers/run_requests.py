"""Requests that a run receives while it trains: to save, or to stop, by a signal, a file or its time limit."""

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.run_record.endings import StopReason
from benchmark.run_record.file_names import EXIT_REQUEST, SAVE_REQUEST
from benchmark.training.machine.run_environment import seconds_since_process_start
from benchmark.training.observer import Observer
from benchmark.training.step import StepFlags

LOOK_S = 2.0
"""Seconds between looks for the files."""

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that stop the run: SIGTERM from Slurm, torchrun and kill; SIGINT from Ctrl-C; SIGHUP from a terminal that is
closed."""

Handler = Callable[[int, Any], Any] | int | None


class RunRequests(Observer):
    """Collect the requests to this process. The processes agree on them in each step (step.py).

    SIGUSR1 and ``touch RUN_DIR/save`` save a checkpoint. SIGUSR2, SIGTERM, Ctrl-C, a closed terminal, the time limit
    and ``touch RUN_DIR/exit`` save one and stop the run. A request stays until it is met; the file ``save`` is removed
    once it is seen.
    """

    def __init__(self, time_limit_s: float | None = None) -> None:
        self._time_limit_s = time_limit_s
        self._signals: set[int] = set()
        self._former_handlers: dict[int, Handler] = {}
        self._files: TriggerFiles | None = None

    def __enter__(self) -> "RunRequests":
        """Handle SIGUSR1 and SIGUSR2 from now on: by default they would end the process."""
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            self._take(number)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former_handlers.items():
            signal.signal(number, handler)
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
            save=signal.SIGUSR1 in self._signals or (files is not None and files.save_asked),
            exit_trigger=files is not None and files.exit_asked,
            sigusr2=signal.SIGUSR2 in self._signals,
            sigterm=not self._signals.isdisjoint(STOPS),
            time_limit=late,
        )

    def about_to_save(self) -> None:
        """Forget the requests for a checkpoint that came until now: this checkpoint meets them."""
        self._signals.discard(signal.SIGUSR1)
        if self._files is not None:
            self._files.save_asked = False

    def end(self, end: StopReason) -> None:
        """Remove the file ``exit``, so that it does not stop the next start."""
        if end.ending == "interrupted" and self._files is not None:
            self._files.exited()

    def _take(self, number: int) -> None:
        self._former_handlers[number] = signal.signal(number, lambda *_: self._signals.add(number))


class TriggerFiles:
    """Look for the files ``save`` and ``exit`` in a thread, so that a file system that hangs does not stop training.

    Files that exist at the start count: somebody made a request while nothing ran.
    """

    def __init__(self, run_dir: Path) -> None:
        self._save, self._exit = run_dir / SAVE_REQUEST, run_dir / EXIT_REQUEST
        self.save_asked = self.exit_asked = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trigger files", daemon=True)
        self._thread.start()

    def exited(self) -> None:
        if self.exit_asked:
            with contextlib.suppress(OSError):
                self._exit.unlink(missing_ok=True)

    def close(self) -> None:
        """Ask the thread to end; it is not waited for if it hangs in the file system."""
        self._closing.set()
        self._thread.join(0.1)

    def _watch(self) -> None:
        self._look()
        while not self._closing.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # as a rule there is no such file
            self._save.unlink()
            self.save_asked = True
        with contextlib.suppress(OSError):
            self.exit_asked = self.exit_asked or self._exit.exists()
