"""Memory of the dry run for our code, by formula for others, and that the two agree."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.dry_run import DryRun, RankReport
from benchmark.planning.dry_runs.step_counts import StepCounts
from benchmark.planning.run_plans.plan_memory import planned_memory
from benchmark.planning.run_plans.plan_options import PlanOptions

CONFIG = RunConfig(benchmark=GPT3_175B, system=SYSTEMS["dgxh100_n64"])


def test_the_dry_runs_worst_rank_counts() -> None:
    small = RankReport("first", 0, 12, 1, 2, 3, 4, 5, 15, 1, 1.0, [])
    large = dataclasses.replace(small, kind="last", peak_bytes=16)
    need, fits, why = planned_memory(CONFIG, DryRun([small, large], 8, None, StepCounts(96, [])), PlanOptions())
    assert need["peak"] == 16
    assert fits
    assert why == ""
    assert planned_memory(CONFIG, DryRun([large], 8, "too much", StepCounts(96, [])), PlanOptions())[1] is False


def test_formula_for_other_stacks() -> None:
    need, fits, why = planned_memory(CONFIG, None, PlanOptions(stack="megatron"))
    assert fits
    assert need["peak"] == pytest.approx(sum(size for kind, size in need.items() if kind != "peak"))
    assert why.startswith("memory by formula: ")
    full = dataclasses.replace(CONFIG, system=dataclasses.replace(CONFIG.system, pipeline_parallel=1))
    assert planned_memory(full, None, PlanOptions(stack="megatron"))[1] is False  # kept whole: 4 devices do not hold it
