"""Memory by formula, beside arXiv 2205.05198 and the dry run."""

import dataclasses

import pytest

from benchmark.planning.step_model.memory_formula import kept_per_block, memory_need
from benchmark.planning.step_model.simulated_step import stack_of
from tests.benchmark.planning.step_model.works import gpt3_work


def test_kept_of_a_block_is_the_papers() -> None:
    """sbh (34 + 5 a s / h), over tensor-parallel devices (section 4.2 of the paper)."""
    work = gpt3_work("megatron_2022", accelerator="A100-80GB", tensor_parallel=8)
    sbh = 2048 * 12288
    assert kept_per_block(work, stack_of(work)) == pytest.approx(sbh * (34 + 5 * 96 * 2048 / 12288) / 8)
    assert kept_per_block(work, stack_of(work), "selective") == pytest.approx(sbh * 34 / 8)
    assert kept_per_block(work, stack_of(work), "full") == pytest.approx(sbh * 2 / 8)


def test_in_flight_micro_batches_do_not_grow_with_the_batch() -> None:
    small, large = (memory_need(gpt3_work("ours", global_batch_size=size)) for size in (2048, 8192))
    assert small == large
    assert memory_need(gpt3_work(pipeline_chunks=1)).activations < memory_need(gpt3_work()).activations
    assert memory_need(gpt3_work("megatron_2021", sharding="none")).optimizer == pytest.approx(
        16 * memory_need(gpt3_work()).optimizer
    )


def test_sharded_weights_are_those_of_two_blocks() -> None:
    sharded = memory_need(gpt3_work("ours", pipeline_parallel=1, pipeline_chunks=1, sharding="fsdp"))
    kept = memory_need(gpt3_work("ours", pipeline_parallel=1, pipeline_chunks=1))
    assert sharded.weights < kept.weights / 20
    assert sharded.total < kept.total
    assert sharded.total == pytest.approx(sum(dataclasses.astuple(sharded)))
