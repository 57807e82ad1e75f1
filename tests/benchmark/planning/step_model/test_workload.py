"""Sizes that a step's time follows from."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.step_model.workload import Transformer, workload_of
from model.flops import train_flops_per_token
from tests.benchmark.planning.step_model.works import GPT3


def test_flops_and_parameters_are_the_models() -> None:
    unpadded = dataclasses.replace(GPT3, vocab=50257)
    assert unpadded.flops_per_token == pytest.approx(train_flops_per_token(GPT3_175B.model), rel=1e-12)
    llama = Transformer(126, 16384, 128, 8192, 128256, kv_heads=8, ffn_hidden=53248, gated=True, tied=False)
    parameters = llama.layers * llama.block_weights + 2 * llama.vocab * llama.hidden
    assert parameters == pytest.approx(405e9, rel=0.01)


def test_a_run_becomes_a_workload() -> None:
    config = RunConfig(benchmark=GPT3_175B, system=dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1))
    work = workload_of(config, stack="ours", precision="bf16")
    assert work.model == GPT3
    assert (work.layout.data_parallel, work.layout.micro_batches, work.layout.sharding) == (16, 96, "zero1")
    fsdp = dataclasses.replace(
        config, system=dataclasses.replace(config.system, pipeline_parallel=1, pipeline_chunks=1)
    )
    assert workload_of(fsdp, stack="torchtitan", precision="bf16").layout.sharding == "fsdp"
    assert work.flops == pytest.approx(config.benchmark.tokens_per_step * GPT3.flops_per_token)
