"""Sizes and accelerators of runs in FP8: refused in one line with what is possible, before anything begins."""

import dataclasses
from typing import Any

import pytest

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from foundation.errors import InputError


def config(benchmark: str, system: str, sizes: dict[str, Any], fields: dict[str, Any], precision: Any) -> RunConfig:
    whole = BENCHMARKS[benchmark]
    whole = dataclasses.replace(whole, model=dataclasses.replace(whole.model, **sizes))
    return RunConfig(whole, dataclasses.replace(SYSTEMS[system], **fields), precision=precision)


@pytest.mark.parametrize(
    ("benchmark", "system", "sizes", "fields"),
    [
        ("gpt3_175b", "dgxh100_n64", {}, {}),
        ("llama31_8b", "dgxh100_n1", {}, {}),
        ("rehearsal", "cpu_p2", {}, {"tensor_parallel": 2}),
        ("rehearsal_llama", "cpu_p2", {}, {"tensor_parallel": 2}),
        ("rehearsal", "cpu_p1", {"seq_length": 40}, {"micro_batch_size": 2}),  # 80 tokens
        ("gpt3_175b", "dgxh100_n64", {}, {"accelerator": ""}),  # the device is asked when it is there
    ],
)
def test_sizes_that_fit(benchmark: str, system: str, sizes: dict[str, Any], fields: dict[str, Any]) -> None:
    config(benchmark, system, sizes, fields, "fp8").require_fit()


REFUSALS: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    (
        "rehearsal",
        "cpu_p1",
        {"seq_length": 40},
        {"micro_batch_size": 1},
        "micro_batch_size 1 x seq_length 40 are 40 tokens, not a multiple of 16; use --micro-batch-size 2 or a "
        "multiple of it, or choose --precision bf16",
    ),
    (
        "rehearsal",
        "cpu_p1",
        {"seq_length": 127},
        {},
        "are 1016 tokens, not a multiple of 16; use --micro-batch-size 16 or a multiple of it",
    ),
    (
        "rehearsal_llama",
        "cpu_p2",
        {"ffn_hidden_size": 432},
        {"tensor_parallel": 2},
        "gate_proj multiplies 128 x 216 on a device with tensor_parallel 2, not multiples of 16; --tensor-parallel "
        "may be 1, or",
    ),
    ("rehearsal_llama", "cpu_p1", {"ffn_hidden_size": 440}, {}, "128 x 440 .* change --hidden-size or --ffn-hidden-si"),
    ("rehearsal", "cpu_p1", {"hidden_size": 40}, {}, "qkv multiplies 40 x 120 .* change --hidden-size, or"),
    (
        "gpt3_175b",
        "dgxa100_n64",
        {},
        {},
        "A100-80GB has no FP8; accelerators with FP8: GB300, .*H100 SXM, .*; or",
    ),
]


@pytest.mark.parametrize(("benchmark", "system", "sizes", "fields", "message"), REFUSALS)
def test_refusals(benchmark: str, system: str, sizes: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^--precision fp8: .*{message}"):
        config(benchmark, system, sizes, fields, "fp8").require_fit()
    config(benchmark, system, sizes, fields, "bf16").require_fit()
