"""Rates of a device, on a CPU."""

import dataclasses
from typing import get_args

import pytest
import torch

from benchmark.config.benchmarks import GPT3_175B, REHEARSAL_LLAMA
from benchmark.planning.run_plan.calibration import MatmulRole
from benchmark.planning.slice import device_rates
from benchmark.planning.slice.device_rates import (
    attention_times,
    elementwise_times,
    launch_time,
    layer_shapes,
    matmul_times,
    possible_sizes,
)
from benchmark.planning.slice.fp8_rates import Fp8Layer
from model.llama31_config import Llama31Config
from tests.benchmark.tiny import MODEL

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device_rates.REPETITION_S, "cpu", 1e-5)


def test_shapes_are_those_of_the_benchmark_s_ranks() -> None:
    assert possible_sizes(GPT3_175B.model) == [1, 2, 4, 8]
    assert layer_shapes(GPT3_175B.model, 4) == {
        "qkv": (12288, 9216),
        "dense": (3072, 12288),
        "h_to_4h": (12288, 12288),
        "4h_to_h": (12288, 12288),
        "output": (12288, 12800),
    }


def test_every_shape_is_timed_in_its_three_roles() -> None:
    found = list(matmul_times(MODEL, 16, CPU, "fp32"))
    assert len(found) == 3 * 5 * 3  # tensor parallel 1, 2 and 4
    assert {one.role for one in found} == set(get_args(MatmulRole))
    assert {(one.tensor_parallel, one.inputs, one.outputs) for one in found if one.layer == "qkv"} == {
        (1, 40, 120),
        (2, 40, 60),
        (4, 40, 30),
    }
    assert all(one.seconds > 0 and one.tokens == 16 and one.precision == "fp32" for one in found)


@pytest.mark.parametrize("fp8_weight_gradients", [False, True])
def test_products_of_an_fp8_run_are_timed_in_the_formats_that_they_have_there(fp8_weight_gradients: bool) -> None:
    """With tensor parallel 2 this model's MLP has 24 columns on a rank, no multiple of 16."""
    model = REHEARSAL_LLAMA.model
    assert isinstance(model, Llama31Config)
    model = dataclasses.replace(model, padded_vocab_size=1024, ffn_hidden_size=48)
    times = list(matmul_times(model, 16, CPU, "fp8", fp8_weight_gradients=fp8_weight_gradients))
    assert list(dict.fromkeys(time.layer for time in times)) == [
        "q_proj+k_proj+v_proj",
        "o_proj",
        "gate_proj+up_proj",
        "down_proj",
        "output",
    ]
    assert {time.tensor_parallel for time in times} == {1} < set(possible_sizes(model))
    formats = {(time.layer == "output", time.role): time.precision for time in times}
    of_weights = "fp8" if fp8_weight_gradients else "bf16"
    assert formats == {
        (False, "forward"): "fp8",
        (False, "input gradient"): "fp8",
        (False, "weight gradient"): of_weights,
        **{(True, role): "bf16" for role in get_args(MatmulRole)},
    }


def test_products_of_fp8_numbers_are_exact_but_for_rounding() -> None:
    layer = Fp8Layer(32, 48, 64, CPU)
    for role, call in layer.products(weight_gradients=True).items():
        exact = layer.exact(role)
        assert float((call().double() - exact).norm() / exact.norm()) < 3e-3


def test_attention_is_timed_forward_and_backward() -> None:
    found = list(attention_times(dataclasses.replace(MODEL, num_attention_heads=2), 2, CPU, torch.float32))
    assert [(one.role, one.heads, one.samples, one.head_size) for one in found] == [
        ("forward", 2, 2, 20),
        ("backward", 2, 2, 20),
        ("forward", 1, 2, 20),
        ("backward", 1, 2, 20),
    ]


def test_passes_over_memory_and_launches_are_timed() -> None:
    found = {one.operation: one for one in elementwise_times(MODEL, 16, CPU, torch.float32)}
    norms, gelus = ["layer norm", "layer norm backward"], ["gelu", "gelu backward"]
    assert list(found) == ["copy", "add", *gelus, *norms, "bias gradient", "adam"]
    with_casts = elementwise_times(MODEL, 16, CPU, torch.bfloat16, casts=True)
    assert {one.operation: one.bytes for one in with_casts if one.operation not in found} == {
        "fp8 cast": 5 * 16 * 160,
        "fp8 transpose": 2 * 16 * 160,
    }
    assert found["copy"].bytes == 2 * 16 * 160 * 4
    assert found["layer norm"].bytes == 2 * 16 * 40 * 4
    launch = launch_time(CPU)
    assert 0 < launch.host_s <= launch.device_s
