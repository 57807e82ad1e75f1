"""Sizes that a step's time follows from."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.step_model.workload import workload_of
from model.flops import part_flops_per_token
from tests.benchmark.planning.step_model.works import GPT3, decoder, gpt3_work


def test_flops_and_parameters_are_the_models() -> None:
    """Whatever the layout; a pipeline's ends have a table each."""
    llama = dataclasses.replace(
        gpt3_work(), model=decoder(126, 16384, 128, 8192, 128256, kv_heads=8, ffn=53248, gated=True)
    )
    assert llama.parameters_of_device == pytest.approx(405e9 / 32, rel=0.05)
    alone = dataclasses.replace(llama.layout, tensor_parallel=1, pipeline_parallel=1, pipeline_chunks=1)
    assert dataclasses.replace(llama, layout=alone).parameters_of_device == pytest.approx(405e9, rel=0.01)


def test_a_run_becomes_a_workload() -> None:
    config = RunConfig(benchmark=GPT3_175B, system=dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1))
    work = workload_of(config, stack="ours", precision="bf16")
    assert work.model == GPT3
    assert (work.layout.data_parallel, work.layout.micro_batches, work.layout.sharding) == (16, 96, "zero1")
    fsdp = dataclasses.replace(
        config, system=dataclasses.replace(config.system, pipeline_parallel=1, pipeline_chunks=1)
    )
    assert workload_of(fsdp, stack="torchtitan", precision="bf16").layout.sharding == "fsdp"
    per_token = part_flops_per_token(GPT3, num_layers=96, output_columns=51200)
    assert work.flops == pytest.approx(config.benchmark.tokens_per_step * per_token)
