"""Published results as workloads."""

import dataclasses

import pytest

from benchmark.planning.backtesting.published_table import load_published_results
from benchmark.planning.backtesting.published_workloads import workload_of_result
from benchmark.planning.step_model.stacks import STACKS

RESULTS = {result.id: result for result in load_published_results()}


def test_every_result_becomes_a_workload_with_its_sources_flops() -> None:
    for result in RESULTS.values():
        work = workload_of_result(result)
        assert work is not None, result.id
        assert work.stack in STACKS
        assert work.layout.micro_batches == result.micro_batches
        assert work.flops == pytest.approx(result.flops_per_step, rel=1e-9), result.id


def test_releases_switches_and_power_are_told_apart() -> None:
    old, new = (workload_of_result(RESULTS[f"mlperf-{name}"]) for name in ("v3.0-dgxh100-512", "v4.1-eos-512"))
    assert old is not None
    assert new is not None
    assert (old.stack, new.stack) == ("mlperf_nvidia_3_0", "mlperf_nvidia")
    plain = workload_of_result(RESULTS["dgxc-24.11-nemotron4-340b-bf16-128"])
    assert plain is not None
    assert {"tp-overlap", "p2p-overlap"} <= set(plain.without)
    titan = workload_of_result(RESULTS["titan-8b-8"])
    assert titan is not None
    assert titan.accelerator == "H100 500 W"
    assert "compile" in titan.without


def test_how_pytorch_shards_and_recomputes_is_told_apart() -> None:
    """Shards within nodes, gradients summed in BF16 or FP32, recomputation that stops early: by switches."""
    hybrid = workload_of_result(RESULTS["fms-a100-7b-128"])
    assert hybrid is not None
    assert (hybrid.layout.replicas, hybrid.stack) == (16, "fms_fsdp")
    old, new = (
        workload_of_result(RESULTS[f"foundry-a100-{name}"]) for name in ("40-bf16-7b-s4096-8", "80-bf16-7b-s4096-8")
    )
    assert old is not None
    assert new is not None
    assert {"early-stop", "bf16-reduce"} & set(old.without) == {"early-stop"}
    assert {"early-stop", "bf16-reduce"} & set(new.without) == {"bf16-reduce"}


def test_a_stack_that_is_not_described_is_left_aside() -> None:
    result = dataclasses.replace(RESULTS["titan-8b-8"], stack="nanotron")
    assert workload_of_result(result) is None
