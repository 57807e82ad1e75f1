"""A plan beside a run: what lies within, what does not, where it may be."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plans.beside_measured import MeasuredRun, beside_measured
from benchmark.planning.run_plans.plan_options import PlanOptions
from benchmark.planning.run_plans.run_plan import make_plan

CONFIG = RunConfig(benchmark=GPT3_175B, system=SYSTEMS["dgxh100_n64"])
PLAN = make_plan(CONFIG, None, PlanOptions(stack="nemo"))
NOTHING = MeasuredRun(None, None, None, None, None, None, None)


def test_a_run_as_planned() -> None:
    assert PLAN.step_s is not None
    run = dataclasses.replace(NOTHING, accelerator="H100 SXM", devices=512, step_s=1.01 * PLAN.step_s, init_s=250.0)
    lines, remarks = beside_measured(PLAN, planned_accelerator="H100 SXM", planned_devices=512, run=run)
    assert [line.figure for line in lines] == ["step", "init"]
    assert all(line.within for line in lines)
    assert lines[0].ratio == pytest.approx(1.01)
    assert lines[0].note == "as planned"
    assert remarks == []


def test_a_slow_run_on_another_machine() -> None:
    assert PLAN.step_s is not None
    run = dataclasses.replace(NOTHING, accelerator="H200", devices=256, step_s=1.5 * PLAN.step_s)
    (line,), remarks = beside_measured(PLAN, planned_accelerator="H100 SXM", planned_devices=512, run=run)
    assert (line.within, line.note) == (False, "+50.0%")
    assert remarks[0] == "planned for accelerator H100 SXM, ran on H200: the plan is of another machine"
    assert remarks[1].startswith("planned for devices 512, ran on 256")
    assert "s a step more than planned" in remarks[2]
    host = dataclasses.replace(run, host_s_per_step=1.45 * PLAN.step_s)
    assert "everything waits for it" in beside_measured(
        PLAN, planned_accelerator="H100 SXM", planned_devices=512, run=host
    )[1][2]  # fmt: skip
