"""Whole steps: sizes, parts, intervals, what-ifs."""

import dataclasses
import random

import pytest

from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B
from benchmark.config.systems import SYSTEMS, system_called
from benchmark.planning.step_model.machine_constants import Constant
from benchmark.planning.step_model.message_groups import group_weights
from benchmark.planning.step_model.simulated_step import (
    simulate_evaluation,
    simulate_step,
    step_influences,
    step_interval,
)
from benchmark.planning.step_model.what_if import IDEAS, apply_what_if
from benchmark.planning.step_model.workload import Workload, workload_of
from tests.backtest.relations import broken_relations, random_work
from tests.benchmark.planning.step_model.works import GPT3, decoder, gpt3_work, rates_of


def influences(work: Workload, *, certain: bool = False) -> list[str]:
    """Return the constants that widen the interval; ``certain``: published steps stand behind all of them."""
    rates = rates_of(work)
    if certain:
        backed = {
            name: Constant(constant, constant.low, constant.high, constant.source, fitted=True, backed=True)
            for name, constant in rates.constants
        }
        rates = rates.changed(backed)
    return [influence.constant for influence in step_influences(work, rates, simulate_step(work, rates).total)]


def test_nvidias_recipe_comes_out() -> None:
    """GPT-3 175B in BF16 on 512 H100, two samples per device: 8.42 s, 52.8 % (docs/facts/peers.md 1.1)."""
    work = gpt3_work(global_batch_size=1024)
    step = simulate_step(work, rates_of(work))
    assert step.total == pytest.approx(8.42, rel=0.06)
    assert step.matmul > 0.7 * step.total
    far = gpt3_work(devices_per_node=2)  # only NVLink hides the messages of four tensor-parallel devices
    exposed = dataclasses.replace(far, without=("tp-overlap",))
    assert simulate_step(far, rates_of(far)) == simulate_step(exposed, rates_of(far))


def test_an_evaluation_is_a_third_of_its_tokens_training_and_a_bubble() -> None:
    work = gpt3_work()
    rates = rates_of(work)
    step = simulate_step(work, rates).total
    evaluation = simulate_evaluation(work, rates, 2048)
    assert step / 3.3 < evaluation < step / 2.5
    assert simulate_evaluation(work, rates, 5660) == pytest.approx(5660 / 2048 * evaluation, rel=0.05)


def test_layers_and_parameters_of_a_device() -> None:
    ten = decoder(10, 64, 1, 64, 64)
    ours, nemo = (gpt3_work(stack, pipeline_parallel=4, pipeline_chunks=1) for stack in ("ours", "nemo"))
    assert dataclasses.replace(ours, model=ten).layers_of_stages == [3, 3, 2, 2]
    assert dataclasses.replace(nemo, model=ten).layers_of_stages == [2, 3, 3, 2]
    assert gpt3_work().layers_of_stages == [2] * 48
    assert gpt3_work().parameters_of_device == pytest.approx((12 * GPT3.layer_matrix_weights + 51200 * 12288) / 4)
    llama = dataclasses.replace(
        gpt3_work(), model=decoder(126, 16384, 128, 8192, 128256, kv_heads=8, ffn=53248, gated=True)
    )
    assert llama.parameters_of_device == pytest.approx(405e9 / 32, rel=0.05)
    alone = dataclasses.replace(llama.layout, tensor_parallel=1, pipeline_parallel=1, pipeline_chunks=1)
    assert dataclasses.replace(llama, layout=alone).parameters_of_device == pytest.approx(405e9, rel=0.01)


def test_a_run_becomes_a_workload() -> None:
    system = dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1)
    work = workload_of(GPT3, GPT3_175B.global_batch_size, system, stack="ours", precision="bf16")
    assert work.model == GPT3
    assert (work.layout.data_parallel, work.layout.micro_batches, work.layout.sharding) == (16, 96, "zero1")
    alone = dataclasses.replace(system, pipeline_parallel=1)
    assert workload_of(GPT3, 1536, alone, stack="torchtitan", precision="bf16").layout.sharding == "fsdp"


def test_layers_in_bf16_of_an_fp8_step() -> None:
    """Two of the 96 layers are at the beginning and one at the end; with all of them, the step is that of BF16."""
    in_bf16, in_fp8 = (gpt3_work("ours", precision, fp8_weight_gradients=False) for precision in ("bf16", "fp8"))
    mixed, plain = (dataclasses.replace(in_fp8, bf16_layers=layers) for layers in ((2, 1), (48, 48)))
    counts = mixed.fp8_layers_of_stages
    assert (counts[:2], counts[-2:], sum(counts)) == ([0, 2], [2, 1], 93)
    assert mixed.fp8_weights_of_device == in_fp8.fp8_weights_of_device == in_fp8.block_weights_of_device
    assert (plain.fp8_weights_of_device, in_bf16.fp8_weights_of_device) == (0, 0)
    bf16_s, plain_s, mixed_s, fp8_s = (
        simulate_step(*apply_what_if(["jitter=off"], work, rates_of(work))).total
        for work in (in_bf16, plain, mixed, in_fp8)
    )
    assert plain_s == pytest.approx(bf16_s, rel=1e-6)
    assert fp8_s < mixed_s < fp8_s + 8 * (bf16_s - fp8_s) * 3 / 96


def test_the_first_group_of_weights_is_exposed() -> None:
    """Of Llama 3.1 8B on one node 9.3 % of the bytes, by the dry run; of GPT-3 the table and one of six chunks.
    Gradients that are summed after each of two micro-batches are twice as many, and those of the second alone wait."""
    system = system_called("dgxh100_n1", "llama31_8b")
    once = dataclasses.replace(system, shard_gradients=False)
    llama, llama_twice = (
        workload_of(LLAMA31_8B.model, 16, layout, stack="ours", precision="bf16") for layout in (once, system)
    )
    weights = group_weights(llama)
    assert len(weights) == 33
    assert weights[0] / sum(weights) == pytest.approx(0.093, abs=5e-4)
    rates = rates_of(llama)
    step, exposed, twice, twice_exposed = (
        simulate_step(dataclasses.replace(work, without=without), rates)
        for work in (llama, llama_twice)
        for without in ((), ("dp-overlap",))
    )
    sums_s = twice_exposed.data_messages - exposed.data_messages
    assert sums_s == pytest.approx(exposed.data_messages * 4 / 6, rel=1e-2)  # FP32 gradients, BF16 weights
    assert twice.data_messages - step.data_messages == pytest.approx(rates.stack.overlap_slowdown * sums_s)
    hidden_share = (1 - step.data_messages / exposed.data_messages) / (1 - rates.stack.overlap_slowdown)
    assert hidden_share == pytest.approx(1 - 0.093, abs=2e-3)
    gpt3 = gpt3_work("ours")
    weights = group_weights(gpt3)
    assert len(weights) == 6
    assert sum(weights) == pytest.approx(gpt3.parameters_of_device)
    assert weights[0] == pytest.approx(gpt3.parameters_of_device / 6, rel=0.2)


def test_published_stacks_have_the_backtests_error_and_others_a_wider_interval() -> None:
    def relative_interval(stack: str) -> tuple[float, float, float]:
        work = gpt3_work(stack)
        rates = rates_of(work)
        step_s = simulate_step(work, rates).total
        low_s, high_s = step_interval(work, rates, step_s, step_influences(work, rates, step_s))
        return low_s / step_s - 1, high_s / step_s - 1, rates.error(fp8=work.fp8)

    assert influences(gpt3_work("nemo")) == []
    low, high, error = relative_interval("nemo")
    assert (-low, high) == pytest.approx((error, error))
    low, high, error = relative_interval("ours")
    assert low < -error and error < high
    assert "stacks.ours.losses" in influences(gpt3_work("ours"))
    assert "common.network_share" in influences(gpt3_work("ours"))
    assert not any(name.startswith("accelerators") for name in influences(gpt3_work("ours")))
    assert "accelerators.B200.matmul_bf16" in influences(gpt3_work("ours", accelerator="B200"))
    assert influences(gpt3_work("ours"), certain=True) == ["p2p-overlap=off"]


def test_ideas_make_no_step_longer() -> None:
    def step_s(*words: str) -> float:
        work = gpt3_work("ours")
        return simulate_step(*apply_what_if(words, work, rates_of(work))).total

    plain = step_s()
    assert all(step_s(word) <= plain for word in IDEAS)
    assert step_s("matmul=2x") < 0.65 * plain
    assert step_s("tp-overlap=off") > plain
    assert step_s("network=0.1x", "nvlink=0.5x") > plain


def test_more_of_a_good_thing_is_never_slower() -> None:
    """``python -m tests.backtest.relations`` tries thousands of steps."""
    for seed in range(8):
        work = random_work(random.Random(seed))
        assert list(broken_relations(work)) == [], work
