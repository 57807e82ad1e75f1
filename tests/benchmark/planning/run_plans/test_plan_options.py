"""Speeds that are given, and the workload of a plan."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B, REHEARSAL
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plans.plan_options import PlanOptions, planned_workload, require_possible
from stage.errors import InputError

H100 = RunConfig(benchmark=GPT3_175B, system=dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1))
CPU = RunConfig(benchmark=REHEARSAL, system=SYSTEMS["cpu_p2"])


def test_a_speed_that_the_device_cannot_have() -> None:
    with pytest.raises(InputError, match=r"at most H100 SXM's peak of 989\.4"):
        require_possible(H100, PlanOptions(tflops=1200.0))
    require_possible(H100, PlanOptions(stack="nemo", tflops=1200.0, precision="fp8"))
    require_possible(CPU, PlanOptions(tflops=0.02))


def test_the_workload_is_the_runs() -> None:
    work = planned_workload(H100, PlanOptions(stack="nemo", precision="fp8", network_gbit_s=200.0))
    assert (work.stack, work.precision, work.network_gbit_s) == ("nemo", "fp8", 200.0)
    assert dataclasses.replace(work.layout, global_batch_size=2048).micro_batches == 128


def test_fp8_where_there_is_none() -> None:
    old = RunConfig(benchmark=GPT3_175B, system=SYSTEMS["dgxa100_n64"])
    with pytest.raises(InputError, match="A100-80GB has no products in FP8; --accelerator may be H100 SXM, H200, B200"):
        require_possible(old, PlanOptions(stack="nemo", precision="fp8"))
