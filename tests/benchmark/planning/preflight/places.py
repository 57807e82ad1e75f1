"""Where a check stands."""

from pathlib import Path
from typing import Any

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.preflight.preflight_check import CheckingProcess
from benchmark.training.engine.rank_environment import Environment
from tests.support import changed


def alone(config: RunConfig | None) -> CheckingProcess:
    return CheckingProcess(config, Environment(0, 1, 0, "localhost:-"), None, "cpu")


def large(run_dir: Path, system: str = "dgxh100_n64", **fields: Any) -> RunConfig:
    return changed(RunConfig(benchmark=GPT3_175B, system=SYSTEMS[system], run_dir=run_dir), **fields)
