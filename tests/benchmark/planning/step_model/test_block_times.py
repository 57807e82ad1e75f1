"""Passes of a block: what each feature of a code is worth."""

import dataclasses
from typing import Any
from unittest import mock

import pytest

from benchmark.planning.step_model.block_times import Passes, block_passes, embedding_passes, output_passes
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.workload import Workload
from tests.benchmark.planning.step_model.works import gpt3_work, rates_of


def passes_of(work: Workload, **changes: Any) -> Passes:
    with mock.patch.dict(STACKS, {work.stack: dataclasses.replace(STACKS[work.stack], **changes)}):
        return block_passes(work, rates_of(work))


def test_products_are_most_of_a_block_and_run_at_their_rate() -> None:
    work = gpt3_work()
    passes = passes_of(work)
    flops = 6 * work.model.block_weights / 4 * 2048
    seconds = passes.forward.matmul + passes.backward.matmul
    assert 0.8 < flops / seconds / (rates_of(work).device.matmul_bf16 * 1e12) < 1
    assert seconds > 0.75 * (passes.forward.total + passes.backward.total)
    assert passes.backward.matmul == pytest.approx(2 * passes.forward.matmul, rel=0.15)


def test_each_feature_costs_or_saves() -> None:
    work, plain = gpt3_work(), passes_of(gpt3_work())
    separate = passes_of(work, fused_accumulation=False)
    assert separate.backward.elementwise > plain.backward.elementwise + 10 * work.model.block_weights / 4 / 3.2e12
    assert passes_of(work, async_backward=False).backward.total > plain.backward.total
    full = passes_of(gpt3_work(recompute="full")).backward
    assert full.recomputed == pytest.approx(plain.forward.total - plain.forward.losses, rel=1e-6)
    assert passes_of(gpt3_work(recompute="selective")).backward.recomputed < 0.1 * full.recomputed
    alone = passes_of(gpt3_work(tensor_parallel=1, pipeline_parallel=8))
    assert alone.forward.tensor_messages == 0
    fp8 = passes_of(gpt3_work(precision="fp8"))
    assert 0.4 < fp8.forward.matmul / plain.forward.matmul < 0.7
    assert fp8.forward.elementwise > plain.forward.elementwise


def test_no_pass_is_shorter_than_its_launch() -> None:
    """Tensor-parallel 8 on a B200 would be bound by 2.9 ms of Python for each block."""
    work = gpt3_work("ours", accelerator="B200", tensor_parallel=8)
    passes = passes_of(work)
    assert passes.forward.host > 0
    assert passes.forward.total + passes.backward.total >= 0.0029


def test_ends_of_the_pipeline() -> None:
    """The output's products are those of a third of a block: V / 12 H of it."""
    work = gpt3_work()
    output = output_passes(work, rates_of(work))
    block = passes_of(work)
    assert output.forward.matmul / block.forward.matmul == pytest.approx(51200 / (12 * 12288), rel=0.1)
    assert 0 < embedding_passes(work, rates_of(work)).forward.total < 0.05 * block.forward.total
