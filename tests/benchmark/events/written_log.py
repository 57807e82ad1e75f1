"""The MLPerf log of a run whose steps do nothing."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import Benchmark, RunConfig
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS
from benchmark.training.guards.spike_detector import Spike
from benchmark.training.guards.state_soundness import StateSoundness
from benchmark.training.loop import Status, run_loop
from benchmark.training.run_folder import open_run_folder
from benchmark.training.step import EvaluationResult, StepResult
from benchmark.training.step_flags import StepFlags

CURVE = [2.751, 2.728, 2.716, 2.708, 2.701, 2.69]


@dataclasses.dataclass(frozen=True)
class MadeUpWork:
    """What the loop calls, of functions."""

    step: Callable[[], StepResult]
    evaluate: Callable[[], EvaluationResult]
    mark_log: Callable[[], None]

    def ready_to_save(self, flags: StepFlags, *, patience_s: float) -> bool:
        return True

    def save(self, since: float) -> None:
        self.mark_log()

    def is_finite(self) -> bool:
        return True

    def audit(self) -> list[str]:
        return []

    def check_state(self) -> StateSoundness:
        return StateSoundness(())

    def roll_back(self, spike: Spike) -> None:
        raise NotImplementedError

    def memory_bytes(self) -> int:
        return 0


def write_log(
    run_dir: Path,
    benchmark: Benchmark = GPT3_175B,
    values: list[float] = CURVE,
    stop_at_step: int | None = None,
    error_at_step: int | None = None,
) -> tuple[Status | None, list[dict[str, Any]]]:
    """The log of a run whose steps do nothing and whose evaluations give ``values``."""
    system = SYSTEMS[DEFAULT_SYSTEM[benchmark.name]]
    config = RunConfig(benchmark=benchmark, system=system, run_dir=run_dir, log_interval=10**9)
    supplied = iter(values)

    def evaluate() -> EvaluationResult:
        return EvaluationResult(next(supplied), 11_584_344)

    status: Status | None = None
    with open_run_folder(config, rank=0) as folder:

        def step() -> StepResult:
            if folder.progress.steps == error_at_step:
                raise ZeroDivisionError
            return StepResult(2.7, 0.3, 2e-5, False, StepFlags(sigterm=folder.progress.steps == stop_at_step))

        try:
            folder.begin_init(config)
            with folder.run_clock(config, eval_tokens=11_590_004, barrier=lambda: None):
                work = MadeUpWork(step, evaluate, folder.mark_log)
                status = run_loop(config, folder.progress, folder.events, work)
                folder.close_run(status)
        except ZeroDivisionError:
            pass
    lines = (run_dir / "result_0.txt").read_text().splitlines()
    return status, [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
