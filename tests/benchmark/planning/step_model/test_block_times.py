"""Passes of a block: what each feature of a code is worth."""

import dataclasses
from typing import Any
from unittest import mock

import pytest

from benchmark.planning.step_model.block_times import Passes, PassTime, block_passes, embedding_passes, output_passes
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.workload import Transformer, Workload
from tests.benchmark.planning.step_model.works import gpt3_work, rates_of

LLAMA = Transformer(32, 4096, 32, 8192, 128256, kv_heads=8, ffn_hidden=14336, gated=True, tied=False)


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


def test_separate_projections_read_their_input_again() -> None:
    """Narrow products are bound by memory: of eight devices with 8 heads of keys, each has 128 columns of them."""
    narrow, wide = (dataclasses.replace(gpt3_work(tensor_parallel=tensor), model=LLAMA) for tensor in (8, 1))
    slower = [
        passes_of(work, separate_projections=True).forward.matmul / passes_of(work).forward.matmul
        for work in (narrow, wide)
    ]
    assert slower[0] > 1.03 > slower[1] >= 1.0


def test_full_recomputation_may_stop_before_the_last_product() -> None:
    """A third of a GPT block's products goes into the MLP's second one; its scatter is not sent again either."""
    work = gpt3_work(recompute="full", tensor_parallel=1, pipeline_parallel=8)
    whole, early = passes_of(work).backward.recomputed, passes_of(work, stops_early=True).backward.recomputed
    products = passes_of(work).forward.matmul
    assert whole - early == pytest.approx(products / 3, rel=0.05)
    parallel = gpt3_work(recompute="full")
    assert parallel.layout.tensor_parallel > 1
    saved = passes_of(parallel).backward.recomputed - passes_of(parallel, stops_early=True).backward.recomputed
    assert saved > passes_of(parallel).forward.matmul / 3.2


def test_selective_recomputation_by_operator_makes_these_products_again() -> None:
    """torchtitan keeps one product of two in BF16; those in FP8 are other operators, of which it keeps none."""
    layout = dataclasses.replace(gpt3_work().layout, recompute="selective", pipeline_parallel=1, tensor_parallel=1)
    work = dataclasses.replace(gpt3_work("torchtitan"), model=LLAMA, layout=layout)
    plain, kept = passes_of(work), passes_of(work, remakes={})
    again = plain.backward.recomputed - kept.backward.recomputed - 0.5 * plain.forward.elementwise
    key, output, up, whole = 1024, 4096, 14336, 2 * 4096 + 2 * 1024 + 3 * 14336
    assert again / plain.forward.matmul == pytest.approx((key + output + up) / whole, rel=0.03)
    fp8 = passes_of(dataclasses.replace(work, precision="fp8"))
    assert fp8.backward.recomputed > 0.7 * fp8.forward.matmul + fp8.forward.elementwise


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


def test_adding_up() -> None:
    time = PassTime(matmul=1.0, host=2.0) + PassTime(host=1.0).times(2)
    assert (time.matmul, time.host, time.total) == (1.0, 4.0, 5.0)
