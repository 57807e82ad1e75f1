"""The MLPerf log of a run whose steps do nothing."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS
from benchmark.run_record.endings import Ending
from benchmark.run_record.phases import PhaseLog
from benchmark.training import loop
from benchmark.training.run_folder import open_run_folder
from benchmark.training.step import EvaluationResult, StepFlags, StepResult
from tests.support import changed

CURVE = [2.751, 2.728, 2.716, 2.708, 2.701, 2.69]


def write_log(
    run_dir: Path,
    benchmark: Benchmark = GPT3_175B,
    values: list[float] = CURVE,
    stop_at_step: int | None = None,
    error_at_step: int | None = None,
) -> tuple[Ending | None, list[dict[str, Any]]]:
    """The log of a run whose steps do nothing and whose evaluations give ``values``."""
    system = SYSTEMS[DEFAULT_SYSTEM[benchmark.name]]
    config = changed(RunConfig(benchmark, system, run_dir=run_dir), log_interval=10**9)
    supplied = iter(values)
    ending: Ending | None = None
    with open_run_folder(config, rank=0) as log, pytest.MonkeyPatch.context() as patch:

        def step(*_: Any, **__: Any) -> StepResult:
            if log.progress.steps == error_at_step:
                raise ZeroDivisionError
            return StepResult(2.7, 0.3, 2e-5, False, StepFlags(sigterm=log.progress.steps == stop_at_step))

        patch.setattr(loop, "train_step", step)
        patch.setattr(loop, "evaluate", lambda *_: EvaluationResult(next(supplied), 11_584_344))
        state: Any = SimpleNamespace(benchmark=benchmark, progress=log.progress)
        batches: Any = SimpleNamespace(at=lambda _: [])
        windows: Any = None
        try:
            with log.run_clock(eval_tokens=11_590_004, barrier=lambda: None):
                run = loop.TrainingRun(state, batches, windows, log.events, PhaseLog())
                ending = loop.run_loop(run, [log]).ending
        except ZeroDivisionError:
            pass
    lines = (run_dir / "result_0.txt").read_text().splitlines()
    return ending, [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
