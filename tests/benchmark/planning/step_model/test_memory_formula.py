"""Memory by formula, beside arXiv 2205.05198."""

import dataclasses

import pytest

from benchmark.planning.step_model.memory_formula import kept_per_block, memory_need
from tests.benchmark.planning.step_model.works import gpt3_work


def test_kept_of_a_block_is_the_papers() -> None:
    """34 s b h without the scores, over tensor-parallel devices (section 4.2 of the paper)."""
    work = gpt3_work("megatron", tensor_parallel=8)
    assert kept_per_block(work) == pytest.approx(2048 * 12288 * 34 / 8)
    assert kept_per_block(work, "full") == pytest.approx(2048 * 12288 * 2 / 8)
    assert kept_per_block(work, "full") < kept_per_block(work, "selective") < kept_per_block(work)


def test_in_flight_micro_batches_do_not_grow_with_the_batch() -> None:
    small, large = (memory_need(gpt3_work("ours", global_batch_size=size)) for size in (2048, 8192))
    assert small == large
    assert memory_need(gpt3_work(pipeline_chunks=1)).activations < memory_need(gpt3_work()).activations


def test_sharded_weights_are_those_of_two_blocks() -> None:
    sharded = memory_need(gpt3_work("ours", pipeline_parallel=1, pipeline_chunks=1, sharding="fsdp"))
    kept = memory_need(gpt3_work("ours", pipeline_parallel=1, pipeline_chunks=1))
    assert sharded.weights < kept.weights / 20
    assert sharded.total < kept.total
    assert sharded.total == pytest.approx(sum(dataclasses.astuple(sharded)))
