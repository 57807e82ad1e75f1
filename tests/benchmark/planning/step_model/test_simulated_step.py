"""Whole steps."""

import dataclasses
import random

import pytest

from benchmark.planning.step_model.simulated_step import (
    layers_of_stages,
    parameters_of_device,
    simulate_evaluation,
    simulate_step,
    stack_of,
)
from benchmark.planning.step_model.workload import Transformer, Workload
from stage.errors import InputError
from tests.benchmark.planning.step_model.relations import broken_relations, random_work
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
    eager = dataclasses.replace(gpt3_work("torchtitan"), without=("compile",))
    assert simulate_step(eager, VALUES).elementwise > 1.1 * simulate_step(gpt3_work("torchtitan"), VALUES).elementwise


def test_sharded_parameters_are_gathered_for_each_pass_without_a_pipeline() -> None:
    model = Transformer(layers=32, hidden=4096, heads=32, seq=2048, vocab=50368)
    layout = dataclasses.replace(
        gpt3_work().layout, devices=128, tensor_parallel=1, pipeline_parallel=1, pipeline_chunks=1, sharding="fsdp"
    )
    work = Workload(model, layout, "bf16", "H100 SXM", "llm_foundry")
    fast, slow = (
        simulate_step(dataclasses.replace(work, network_gbit_s=rate), VALUES).data_messages for rate in (400.0, 40.0)
    )
    assert slow > 5 * fast
    copies = dataclasses.replace(layout, replicas=16)  # sharded within a node
    within = simulate_step(dataclasses.replace(work, layout=copies, network_gbit_s=40.0), VALUES)
    assert within.data_messages < slow


def test_an_evaluation_is_a_third_of_its_tokens_training_and_a_bubble() -> None:
    work = gpt3_work()
    step = simulate_step(work, VALUES).total
    evaluation = simulate_evaluation(work, VALUES, 2048)
    assert step / 3.3 < evaluation < step / 2.5
    assert simulate_evaluation(work, VALUES, 5660) == pytest.approx(5660 / 2048 * evaluation, rel=0.05)


def test_layers_of_stages() -> None:
    ten = Transformer(layers=10, hidden=64, heads=1, seq=64, vocab=64)
    assert layers_of_stages(
        dataclasses.replace(gpt3_work("ours", pipeline_parallel=4, pipeline_chunks=1), model=ten)
    ) == [3, 3, 2, 2]
    assert layers_of_stages(dataclasses.replace(gpt3_work(pipeline_parallel=4, pipeline_chunks=1), model=ten)) == [
        2,
        3,
        3,
        2,
    ]
    assert layers_of_stages(gpt3_work()) == [2] * 48
    ends = parameters_of_device(gpt3_work())
    assert ends == pytest.approx((12 * GPT3.block_weights + 51200 * 12288) / 4)


def test_unknown_stacks_and_precisions() -> None:
    with pytest.raises(InputError, match="stack apex: unknown; there are ours, megatron"):
        stack_of(gpt3_work("apex"))
    with pytest.raises(InputError, match="stack ours has no fp8, only bf16; stacks with fp8: megatron, nemo"):
        stack_of(gpt3_work("ours", "fp8"))
    assert not stack_of(dataclasses.replace(gpt3_work(), without=("p2p-overlap",))).pipeline_hidden


@pytest.mark.parametrize("seed", range(20))
def test_more_of_a_good_thing_is_never_slower(seed: int) -> None:
    work = random_work(random.Random(seed))
    assert list(broken_relations(work)) == [], work


def test_tensor_parallel_over_nodes_is_slower_than_within_one() -> None:
    within = gpt3_work(tensor_parallel=16, devices_per_node=16)
    over = dataclasses.replace(within, layout=dataclasses.replace(within.layout, devices_per_node=8))
    assert simulate_step(over, VALUES).total > 1.05 * simulate_step(within, VALUES).total


def test_sums_of_whole_gradients_take_twice_as_long() -> None:
    """BLOOM's code sums by all-reduce where others scatter: of 4 bytes a number, and 2 to gather, 10 instead of 6."""
    works = [gpt3_work(stack, pipeline_chunks=1) for stack in ("megatron_deepspeed", "megatron_2022")]
    exchanged = [
        simulate_step(dataclasses.replace(work, model=dataclasses.replace(GPT3, tied=False)), VALUES).data_messages
        for work in works
    ]
    assert exchanged[0] / exchanged[1] == pytest.approx(10 / 6, rel=0.01)
