"""The faults of one process of a drill: notices their moments, notes them, and strikes."""

import functools
import importlib
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmark.config.run_config import RunConfig
from benchmark.run_record.phases import Phase
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.process import run_process
from foundation.errors import run_command
from tests.drills.acts import ACTS, REPEATED, Arguments, Strike
from tests.drills.faults import Fault

WRITER, FOLDER = "benchmark.training.checkpoints.checkpoint_writer", "benchmark.run_record.checkpoint_folder"
SEAMS: dict[str, tuple[str, str]] = {
    "phase": ("benchmark.training.liveness.heartbeat", "Heartbeat.enter"),
    "step": ("benchmark.training.loop", "train_step"),
    "passes": ("benchmark.training.step", "accumulate"),
    "gradients": ("benchmark.training.engine.adam", "Adam.gradient_square_sum"),
    "block": ("model.passes.block_pass", "BlockPass._whole_forward"),
    "evaluation batch": ("benchmark.training.step", "read_micro_batch"),
    "copy": (WRITER, "Checkpointer._copy"),
    "shards": ("torch.distributed.checkpoint", "FileSystemWriter.write_data"),
    "rename": ("pathlib", "Path.rename"),
    "renamed": (FOLDER, "sync_to_disk"),
    "retire": (WRITER, "retire_old_checkpoints"),
    "summary": ("benchmark.training.observers.summary_file", "write_summary"),
    "event": ("benchmark.run_record.events.line_files", "JsonLines.write"),
    "log line": ("benchmark.run_record.events.mlperf_log", "MlperfLog.write"),
}
"""Functions of the run that a fault may strike in, by the name that faults use ("call:NAME"): they are wrapped in the
process of a drill, which the run knows nothing of. copy: of the state, for a checkpoint. shards: writing a process's
files. rename: all files are there, the folder has not got its name. renamed: it has."""
CALL = "call:"
STRUCK = "struck.jsonl"
"""In the drill's folder: every strike, by the process that it struck."""
clock = time.time
"""The right one, whatever a fault does to the other."""


def wrap(seam: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function of ``seam`` by ``around(it)``, in this process."""
    module, name = SEAMS[seam]
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    setattr(owner, last, functools.wraps(getattr(owner, last))(around(getattr(owner, last))))


class Injector:
    """Hears the phases and stands at the seams of its process."""

    def __init__(self, faults: Sequence[Fault], folder: Path, run_dir: Path, *, rank: int, attempt: int) -> None:
        """``folder``: where strikes are noted."""
        mine = [fault for fault in faults if fault.rank in (rank, "all") and fault.attempt in (attempt, None)]
        self._strikes = [Strike(fault, run_dir) for fault in mine]
        self._folder, self._run_dir, self._rank, self._attempt = folder, run_dir, rank, attempt
        self.steps = -1

    def enter(self, phase: Phase, steps: int) -> None:
        self.steps = steps
        for strike in self._due(phase):
            self._after_delay(strike)

    def stand_at_seams(self) -> None:
        """Wrap the functions that the faults strike in, and the one that is told the phases."""
        wrap("phase", self._heard)
        for seam in sorted({strike.fault.at for strike in self._strikes if strike.fault.at.startswith(CALL)}):
            wrap(seam.removeprefix(CALL), lambda call, seam=seam: self._around(seam, call))  # type: ignore[misc]

    def _heard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(heartbeat: Any, phase: Phase, steps: int) -> None:
            call(heartbeat, phase, steps)
            self.enter(phase, steps)

        return wrapped

    def _around(self, seam: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            due = self._due(seam)
            for strike in due:
                arguments = self._strike(strike, arguments)
            started = time.perf_counter()
            result = call(*arguments, **named)
            for strike in due:
                if strike.fault.act == "slow":
                    if isinstance(result, Generator):
                        result = _slowed(result, strike.fault.amount)
                    else:
                        _compute(strike.fault.amount * (time.perf_counter() - started))
            return result

        return wrapped

    def _due(self, at: str) -> list[Strike]:
        return [
            strike
            for strike in self._strikes
            if strike.fault.at == at and not strike.over and self.steps >= strike.fault.steps[0]
        ]

    def _after_delay(self, strike: Strike) -> None:
        if strike.fault.delay_s and strike.fault.act not in REPEATED:
            strike.over = True
            threading.Timer(strike.fault.delay_s, self._strike, (strike, ())).start()
        else:
            self._strike(strike, ())

    def _strike(self, strike: Strike, arguments: Arguments) -> Arguments:
        if not strike.count:
            strike.since_s = time.monotonic()
            self._note(strike.fault)
        strike.count += 1
        strike.over = strike.over or strike.fault.act not in REPEATED
        return ACTS[strike.fault.act](strike, arguments)

    def _note(self, fault: Fault) -> None:
        """Which fault strikes, when and where, before it does."""
        line = {
            "act": fault.act,
            "rank": self._rank,
            "attempt": self._attempt,
            "steps": self.steps,
            "time_s": clock(),
        }
        handle = os.open(self._folder / STRUCK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.write(handle, f"{json.dumps(line)}\n".encode())
        os.close(handle)


def _compute(seconds: float) -> None:
    """Take time as a slow device does: computing, not sleeping."""
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass


def _slowed(passing: Generator[Any, Any, Any], amount: float) -> Generator[Any, Any, Any]:
    """A pass that computes longer by ``amount`` of what it does between its pauses."""
    while True:
        started = time.perf_counter()
        try:
            pending = next(passing)
        except StopIteration as stop:
            _compute(amount * (time.perf_counter() - started))
            return stop.value
        _compute(amount * (time.perf_counter() - started))
        yield pending


def run_disturbed(config: RunConfig, faults: Sequence[Fault], folder: Path) -> NoReturn:
    """A process of a drill's run; it ends as that of ``benchmark train``."""
    environment = read_environment()
    attempt = int(environment.attempt)
    injector = Injector(faults, folder, config.run_dir, rank=environment.rank, attempt=attempt)
    injector.stand_at_seams()
    injector.enter("start", -1)
    run_command(lambda: run_process(config))
