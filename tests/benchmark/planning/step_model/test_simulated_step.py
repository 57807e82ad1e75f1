"""Whole steps."""

import dataclasses
import random

import pytest

from benchmark.planning.step_model.simulated_step import simulate_evaluation, simulate_step
from benchmark.planning.step_model.workload import Transformer, Workload
from stage.errors import InputError
from tests.backtest.relations import broken_relations, random_work
from tests.benchmark.planning.step_model.works import GPT3, VALUES, gpt3_work


def test_nvidias_recipe_comes_out() -> None:
    """GPT-3 175B in BF16 on 512 H100, two samples per device: 8.42 s, 52.8 % (docs/facts/peers.md 1.1)."""
    step = simulate_step(gpt3_work(global_batch_size=1024), VALUES)
    assert step.total == pytest.approx(8.42, rel=0.06)
    assert step.matmul > 0.7 * step.total
    assert min(dataclasses.astuple(step)) >= 0


def test_more_of_anything_takes_longer() -> None:
    base = simulate_step(gpt3_work(), VALUES).total
    for changes in (
        {"recompute": "full"},
        {"pipeline_chunks": 1},
        {"global_batch_size": 2176},
    ):
        assert simulate_step(gpt3_work(**changes), VALUES).total > base, changes
    for feature in ("tp-overlap", "dp-overlap", "p2p-overlap"):
        without = dataclasses.replace(gpt3_work(), without=(feature,))
        assert simulate_step(without, VALUES).total > base, feature
    slow = dataclasses.replace(gpt3_work(devices=64, global_batch_size=256), network_gbit_s=25.0)
    assert (
        simulate_step(slow, VALUES).total > simulate_step(dataclasses.replace(slow, network_gbit_s=400.0), VALUES).total
    )


def test_sharded_parameters_are_gathered_for_each_pass_without_a_pipeline() -> None:
    model = Transformer(layers=32, hidden=4096, heads=32, seq=2048, vocab=50368)
    layout = dataclasses.replace(
        gpt3_work().layout, devices=128, tensor_parallel=1, pipeline_parallel=1, pipeline_chunks=1, sharding="fsdp"
    )
    work = Workload(model, layout, "bf16", "H100 SXM", "torchtitan")
    fast, slow = (
        simulate_step(dataclasses.replace(work, network_gbit_s=rate), VALUES).data_messages for rate in (400.0, 40.0)
    )
    assert slow > 5 * fast


def test_an_evaluation_is_a_third_of_its_tokens_training_and_a_bubble() -> None:
    work = gpt3_work()
    step = simulate_step(work, VALUES).total
    evaluation = simulate_evaluation(work, VALUES, 2048)
    assert step / 3.3 < evaluation < step / 2.5
    assert simulate_evaluation(work, VALUES, 5660) == pytest.approx(5660 / 2048 * evaluation, rel=0.05)


def test_layers_of_stages() -> None:
    ten = Transformer(layers=10, hidden=64, heads=1, seq=64, vocab=64)
    ours, nemo = (gpt3_work(stack, pipeline_parallel=4, pipeline_chunks=1) for stack in ("ours", "nemo"))
    assert dataclasses.replace(ours, model=ten).layers_of_stages == [3, 3, 2, 2]
    assert dataclasses.replace(nemo, model=ten).layers_of_stages == [2, 3, 3, 2]
    assert gpt3_work().layers_of_stages == [2] * 48
    assert gpt3_work().parameters_of_device == pytest.approx((12 * GPT3.block_weights + 51200 * 12288) / 4)


def test_a_precision_that_the_stack_lacks() -> None:
    with pytest.raises(InputError, match="stack ours has no fp8, only bf16; stacks with fp8: megatron, nemo"):
        gpt3_work("ours", "fp8").require_precision()


@pytest.mark.parametrize("seed", range(12))
def test_more_of_a_good_thing_is_never_slower(seed: int) -> None:
    work = random_work(random.Random(seed))
    assert list(broken_relations(work)) == [], work


def test_tensor_parallel_over_nodes_is_slower_than_within_one() -> None:
    within = gpt3_work(tensor_parallel=16, devices_per_node=16)
    over = dataclasses.replace(within, layout=dataclasses.replace(within.layout, devices_per_node=8))
    assert simulate_step(over, VALUES).total > 1.05 * simulate_step(within, VALUES).total
