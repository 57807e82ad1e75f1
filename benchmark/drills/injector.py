"""The faults of one process of a drill: notices their moments, notes them, and strikes."""

import json
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmark.config.run_config import RunConfig
from benchmark.drills.acts import ACTS, REPEATED, Arguments, Strike
from benchmark.drills.faults import Fault, strikes
from benchmark.drills.seams import wrap
from benchmark.supervision.phases import Phase
from benchmark.training.checkpoints.checkpoint_folder import whole_checkpoints
from benchmark.training.engine.distributed import read_environment
from benchmark.training.process import run_process
from stage.errors import run_command

CALL = "call:"
STRUCK = "struck.jsonl"
"""In the drill's folder: every strike, by the process that it struck."""
clock = time.time
"""The right one, whatever a fault does to the other."""


class Injector:
    """Observes the phases and stands at the seams of its process (``PhaseObserver``)."""

    def __init__(self, faults: Sequence[Fault], folder: Path, run_dir: Path, *, rank: int, attempt: int) -> None:
        """``folder``: where strikes are noted."""
        self._strikes = [Strike(fault, run_dir) for fault in faults if strikes(fault, rank=rank, attempt=attempt)]
        self._folder, self._run_dir, self._rank, self._attempt = folder, run_dir, rank, attempt
        self.steps = -1

    def enter(self, phase: Phase, steps: int) -> None:
        self.steps = steps
        for strike in self._due(phase):
            self._after_delay(strike)

    def stand_at_seams(self) -> None:
        """Wrap the functions that the faults strike in."""
        for seam in sorted({strike.fault.at for strike in self._strikes if strike.fault.at.startswith(CALL)}):
            wrap(seam.removeprefix(CALL), lambda call, seam=seam: self._around(seam, call))  # type: ignore[misc]

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
        note_strike(self._folder, self._run_dir, fault, rank=self._rank, attempt=self._attempt, steps=self.steps)


def note_strike(folder: Path, run_dir: Path, fault: Fault, *, rank: int, attempt: int, steps: int) -> None:
    """Before a fault strikes: which one, when, where, and which checkpoints there were."""
    line = {
        "act": fault.act,
        "at": fault.at,
        "rank": rank,
        "attempt": attempt,
        "steps": steps,
        "time_s": clock(),
        "checkpoints": whole_checkpoints(run_dir),
    }
    handle = os.open(folder / STRUCK, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
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
    run_command(lambda: run_process(config, injector))
