"""Whole steps: sizes, parts, intervals, what-ifs."""

import dataclasses
import random

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.step_model.machine_constants import committed_constants, values_of
from benchmark.planning.step_model.simulated_step import predict_step, simulate_evaluation, simulate_step
from benchmark.planning.step_model.what_if import IDEAS, apply_what_if
from benchmark.planning.step_model.workload import Workload, workload_of
from tests.backtest.relations import broken_relations, random_work
from tests.benchmark.planning.step_model.works import GPT3, VALUES, decoder, gpt3_work

CONSTANTS = committed_constants()


def influences(work: Workload, *, certain: bool = False) -> list[str]:
    """Return the constants that widen the interval; ``certain``: published steps stand behind all of them."""
    constants = {name: dataclasses.replace(each, backed=each.backed or certain) for name, each in CONSTANTS.items()}
    return [one.constant for one in predict_step(work, constants).influences]


def test_nvidias_recipe_comes_out() -> None:
    """GPT-3 175B in BF16 on 512 H100, two samples per device: 8.42 s, 52.8 % (docs/facts/peers.md 1.1)."""
    step = simulate_step(gpt3_work(global_batch_size=1024), VALUES)
    assert step.total == pytest.approx(8.42, rel=0.06)
    assert step.matmul > 0.7 * step.total
    far = gpt3_work(devices_per_node=2)  # only NVLink hides the messages of four tensor-parallel devices
    assert simulate_step(far, VALUES) == simulate_step(dataclasses.replace(far, without=("tp-overlap",)), VALUES)


def test_an_evaluation_is_a_third_of_its_tokens_training_and_a_bubble() -> None:
    work = gpt3_work()
    step = simulate_step(work, VALUES).total
    evaluation = simulate_evaluation(work, VALUES, 2048)
    assert step / 3.3 < evaluation < step / 2.5
    assert simulate_evaluation(work, VALUES, 5660) == pytest.approx(5660 / 2048 * evaluation, rel=0.05)


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
    work = workload_of(RunConfig(GPT3_175B, system), stack="ours", precision="bf16")
    assert work.model == GPT3
    assert (work.layout.data_parallel, work.layout.micro_batches, work.layout.sharding) == (16, 96, "zero1")
    alone = RunConfig(GPT3_175B, dataclasses.replace(system, pipeline_parallel=1))
    assert workload_of(alone, stack="torchtitan", precision="bf16").layout.sharding == "fsdp"


def test_published_stacks_have_the_backtests_error_and_others_a_wider_interval() -> None:
    nemo, ours = (predict_step(gpt3_work(stack), CONSTANTS) for stack in ("nemo", "ours"))
    assert nemo.influences == ()
    assert nemo.high_s / nemo.step_s - 1 == pytest.approx(CONSTANTS["stacks.nemo.error"].value)
    error_s = CONSTANTS["stacks.ours.error"].value * ours.step_s
    assert ours.low_s < ours.step_s - error_s and ours.step_s + error_s < ours.high_s
    assert "stacks.ours.losses" in influences(gpt3_work("ours"))
    assert not any(name.startswith("accelerators") for name in influences(gpt3_work("ours")))
    assert "accelerators.B200.matmul_bf16" in influences(gpt3_work("ours", accelerator="B200"))
    assert influences(gpt3_work("ours"), certain=True) == ["p2p-overlap=off"]


def test_ideas_make_no_step_longer() -> None:
    def step_s(*words: str) -> float:
        work, constants = apply_what_if(words, gpt3_work("ours"), CONSTANTS)
        return simulate_step(work, values_of(constants)).total

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
