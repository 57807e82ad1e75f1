"""The processes of a run on this machine, one for each device, in place of srun in a Slurm job."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from benchmark.launch.keep_running import Refused, RunMachines, keep_running, say
from benchmark.launch.next_attempt import BAD_INPUT, INTERRUPTED, Decision
from benchmark.run_record.attempt_folder import all_attempts, read_start
from benchmark.run_record.file_names import attempts_folder
from foundation.child_processes import INTERRUPTED as BY_CTRL_C
from foundation.child_processes import require_free_port, require_loopback, reserved_port
from foundation.errors import InputError, run_command
from foundation.git import REPOSITORY

TO_FOLLOW_S = 20.0
"""Seconds from the first failure until the other processes are killed: their watchdogs end them after ten."""
LOOK_S = 0.1
ORDERS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "a closed terminal"}


class OneMachine(RunMachines):
    """Start ``python -m ARGUMENTS`` in every process."""

    def __init__(self, arguments: Sequence[str], *, processes: int, port: int | None = None) -> None:
        """``port``: where the processes meet; None takes a free one. Raises InputError if it is in use, and on
        a machine whose processes cannot meet."""
        require_loopback()
        if port is not None:
            require_free_port(port)
        self.name = f"process {os.getpid()}"
        self._arguments, self._processes, self._port = arguments, processes, port
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, attempt: str, log: Path) -> int:
        with reserved_port() if self._port is None else nullcontext(self._port) as port, log.open("ab") as errors:
            common = {**self.environment(attempt, self.name), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
            common = {"OMP_WAIT_POLICY": "passive", **os.environ, **common, "WORLD_SIZE": str(self._processes)}
            # relative paths are the caller's, whose folder may hold a "model" of its own: -P
            common["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
            words = [sys.executable, "-u", "-P", "-m", *self._arguments]
            try:
                for rank in range(self._processes):
                    variables = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                    # a session of its own: Ctrl-C and a closed terminal are passed on as an order to save
                    started = subprocess.Popen(
                        words, env=variables, stdin=subprocess.DEVNULL, stderr=errors, start_new_session=True
                    )
                    self._running.append(started)
                return self._wait()
            finally:
                for process in self._running:
                    process.kill()
                    process.wait()
                self._running = []

    def _wait(self) -> int:
        """Wait for the end, or for the loss of the lease; return the first failure's exit status in a shell's form."""
        failed, failed_s = 0, 0.0
        while True:
            codes = [process.poll() for process in self._running]
            code_of_failure = next((code for code in codes if code), 0)
            if code_of_failure and not failed:
                failed, failed_s = 128 - code_of_failure if code_of_failure < 0 else code_of_failure, time.monotonic()
            if self.has_lost_lease or None not in codes or (failed and time.monotonic() - failed_s > TO_FOLLOW_S):
                return failed
            time.sleep(LOOK_S)

    @contextmanager
    def taking_orders(self) -> Iterator[None]:
        """Save and stop at Ctrl-C, SIGTERM and a closed terminal (not under nohup); kill at a second Ctrl-C."""
        is_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        obeyed = [number for number in ORDERS if number != signal.SIGHUP or not is_nohup]
        earlier_handlers = {number: signal.signal(number, self._order) for number in obeyed}
        try:
            yield
        finally:
            for number, handler in earlier_handlers.items():
                signal.signal(number, handler)

    def _order(self, number: int, frame: FrameType | None) -> None:
        if self.ordered and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.ordered:
            self.ordered = ORDERS[signal.Signals(number)]
            say(f"{self.ordered}: the run is saved and stopped")
        for process in self._running:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)


def run_here(run_dir: Path, command: Sequence[str], *, processes: int, port: int | None = None) -> Decision:
    """Run ``python -m benchmark COMMAND --run-dir RUN_DIR`` in several processes of this machine until it has ended.

    Returns the last decision, with status 130 after Ctrl-C. Nothing is left of a run whose input was refused.
    Raises InputError for a port in use, and for a folder in which a run has ended or is running.
    """
    arguments = ["benchmark", *command, "--run-dir", str(run_dir)]
    machines = OneMachine(arguments, processes=processes, port=port)
    try:
        with machines.taking_orders():
            decision = keep_running(run_dir, machines)
            if decision.status == BAD_INPUT:
                remove_refused(run_dir)
    except Refused as refused:
        raise InputError(str(refused)) from None
    if machines.ordered == ORDERS[signal.SIGINT] and decision.status == INTERRUPTED:
        return Decision("stop", BY_CTRL_C, decision.reason)
    return decision


def remove_refused(run_dir: Path) -> None:
    """Remove a run folder that holds nothing but attempts that never began."""
    entries = {entry.name for entry in run_dir.iterdir()}
    attempts = all_attempts(run_dir)
    if entries <= {attempts_folder(run_dir).name} and not any(map(read_start, attempts)):
        with suppress(OSError):
            shutil.rmtree(run_dir)


def run_here_and_exit(run_dir: Path, command: Sequence[str], *, processes: int, port: int | None) -> NoReturn:
    """Leave this process with the status of :func:`run_here`, or with 2 and one line if the input is bad."""
    run_command(lambda: run_here(run_dir, command, processes=processes, port=port).status)
