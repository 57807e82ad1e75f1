"""Speeds that are given, and the workload of a plan."""

import dataclasses
import math

import pytest

from benchmark.config.benchmarks import GPT3_175B, REHEARSAL
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plans.plan_options import (
    PlanOptions,
    flops_per_token,
    given_tflops,
    planned_workload,
    require_possible,
)
from stage.errors import InputError

H100 = RunConfig(benchmark=GPT3_175B, system=dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1))
CPU = RunConfig(benchmark=REHEARSAL, system=SYSTEMS["cpu_p2"])


def test_given_speeds() -> None:
    assert given_tflops(H100, PlanOptions()) is None
    given = given_tflops(H100, PlanOptions(mfu=0.5))
    assert given is not None
    assert given[0] == pytest.approx(494.7)
    assert given[1] == "MFU 50.0% of 989.4 TFLOP/s, as given"
    with pytest.raises(InputError, match=r"at most H100 SXM's peak of 989\.4"):
        given_tflops(H100, PlanOptions(tflops=1200.0))
    assert given_tflops(H100, PlanOptions(tflops=1200.0, precision="fp8")) is not None
    assert given_tflops(CPU, PlanOptions(tflops=0.02)) is not None


def test_what_ifs_need_constants() -> None:
    require_possible(CPU, PlanOptions())
    with pytest.raises(InputError, match="--what-if: there are no constants of a CPU, only of A100-80GB"):
        require_possible(CPU, PlanOptions(what_if=("nvlink=2x",)))


def test_the_workload_is_the_runs() -> None:
    work = planned_workload(H100, PlanOptions(stack="nemo", precision="fp8", network_gbit_s=200.0))
    assert (work.stack, work.precision, work.network_gbit_s) == ("nemo", "fp8", 200.0)
    assert dataclasses.replace(work.layout, global_batch_size=2048).micro_batches == 128


def test_another_model_than_gpt_3() -> None:
    """Llama 3.1 405B has 405e9 parameters (arXiv 2407.21783)."""
    sizes = dataclasses.replace(
        GPT3_175B.model,
        num_layers=126,
        hidden_size=16384,
        num_attention_heads=128,
        seq_length=8192,
        max_position_embeddings=8192,
        vocab_size=128256,
        padded_vocab_size=128256,
    )
    config = dataclasses.replace(H100, benchmark=dataclasses.replace(GPT3_175B, model=sizes))
    options = PlanOptions(stack="megatron", kv_heads=8, ffn_hidden_size=53248, gated_mlp=True)
    require_possible(config, options)
    model = planned_workload(config, options).model
    assert model.parameters == pytest.approx(405.8e9, rel=0.001)
    assert flops_per_token(config, options) == model.flops_per_token
    assert flops_per_token(config, PlanOptions()) > model.flops_per_token


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PlanOptions(kv_heads=8), "stack ours has GPT-3's blocks only; choose another --stack, one of megatron, nemo"),
        (PlanOptions(stack="nemo", kv_heads=7), "--kv-heads 7: expected a divisor of the 96 heads of queries"),
        (PlanOptions(stack="nemo", kv_heads=0), "--kv-heads 0: expected a divisor"),
        (
            PlanOptions(stack="nemo", ffn_hidden_size=3),
            "--ffn-hidden-size 3: expected a multiple of tensor parallel, 4",
        ),
        (PlanOptions(stack="nemo", ffn_hidden_size=1 << 40), "at most 16,777,216"),
        (PlanOptions(stack="nemo", watts=math.nan), "--watts nan: expected more than 0 and at most 100,000"),
        (PlanOptions(stack="nemo", watts=1e300), r"--watts 1e\+300: expected"),
        (PlanOptions(stack="nemo", dollars_per_hour=1e308), r"--dollars-per-hour 1e\+308: expected"),
        (PlanOptions(stack="nemo", network_gbit_s=1e-300), "--network-gbit-s 1e-300: expected 0.1 to 100,000"),
        (PlanOptions(stack="nemo", network_gbit_s=math.inf), "--network-gbit-s inf: expected 0.1 to 100,000"),
    ],
)
def test_impossible_options(options: PlanOptions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        require_possible(H100, options)


def test_fp8_where_there_is_none() -> None:
    old = RunConfig(benchmark=GPT3_175B, system=SYSTEMS["dgxa100_n64"])
    with pytest.raises(InputError, match="A100-80GB has no products in FP8; --accelerator may be H100 SXM, H200, B200"):
        require_possible(old, PlanOptions(stack="nemo", precision="fp8"))
