"""Kernels compiled for a CPU compute what their operators do; kernels that are wrong or fail keep their operators."""

import dataclasses
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from model.decoder_sizes import DecoderSizes
from model.fused_kernel import compiled
from model.gpt3_config import GPT3Config
from model.kernels import (
    add_and_rms_norm,
    gelu,
    gelu_backward,
    rms_norm_backward_and_add,
    rms_norm_forward,
    swiglu,
    swiglu_backward,
)
from model.llama31_config import Llama31Config
from model.measuring_kernels import (
    add_and_rms_norm_and_largest,
    gelu_and_largest,
    gelu_backward_and_largest,
    rms_norm_and_largest,
    rms_norm_backward_and_add_and_largest,
    rotated_back_and_largest,
    swiglu_and_largest,
    swiglu_backward_and_largest,
)
from model.passes.proofs import kernel_proof
from model.passes.proofs.kernel_examples import (
    MEASURING_OF_GPT3,
    MEASURING_OF_LLAMA,
    AnyKernel,
    PassTensors,
    kernels_of,
)
from model.passes.proofs.kernel_proof import FIND_LARGEST, problem_of, prove_kernels
from model.passes.softmax_loss import exponential_sums
from model.rotary_kernel import with_rotated_heads

LLAMA = Llama31Config(1, 64, 8, 32, 90, 96, num_key_value_heads=2, ffn_hidden_size=80)
GPT3 = GPT3Config(1, 24, 3, 8, 90, 96)
CPU = torch.device("cpu")
SUMS_AS_OPERATORS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
"""Before PyTorch 2.13 inductor sums in an order in which a BF16 result can be rounded otherwise."""


@pytest.fixture(autouse=True)
def operators_afterwards() -> Iterator[None]:
    yield
    for kernel, _ in (*kernels_of(LLAMA, 1, "fp8"), *kernels_of(GPT3, 1, "fp8")):
        kernel.compiled = None


@pytest.fixture(scope="module")
def inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both number formats share the compiled headers."""
    return tmp_path_factory.mktemp("inductor")


def prove(sizes: DecoderSizes, *, deterministic: bool = False) -> str:
    return prove_kernels(sizes, ranks=2, batch=1, dtype=torch.bfloat16, device=CPU, deterministic=deterministic)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler here")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_compiled_kernels_compute_what_their_operators_do(
    dtype: torch.dtype, inductor_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By inductor's C++ backend without vectors: BF16 results to the bit but for GELU's tanh, the sums of rows and
    columns in another order. FP32 takes the way of float64, whose tolerance is a thousand millionth of its own: two
    kernels show it, for those of BF16 compute in FP32."""
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(inductor_cache))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    shapes = PassTensors(LLAMA, 1, 2, dtype, CPU)
    summing = exponential_sums, rms_norm_backward_and_add
    plain = [one for one in kernels_of(LLAMA) if dtype == torch.bfloat16 or one[0] in summing]
    measuring = (*MEASURING_OF_GPT3, MEASURING_OF_LLAMA[-1]) if dtype == torch.bfloat16 else ()
    for kernel, example in (*plain, *measuring):
        function: Callable[..., Any] = compiled(kernel, deterministic=True)
        # whether the machine has vectors is not asked, which takes a compilation of each kind
        with torch.no_grad(), config.patch({"cpp.vec_isa_ok": False}):
            assert problem_of(kernel, function, example(shapes)) == "", kernel.name
            again = example(shapes)
            operators = kernel.function(*[x.clone() if p in kernel.changes else x for p, x in enumerate(again)])
            results = function(*again)
        pairs = zip(*([x] if isinstance(x, torch.Tensor) else x or () for x in (results, operators)), strict=True)
        for ours, theirs in pairs:
            assert ours.shape == theirs.shape
            assert ours.dtype == theirs.dtype
            if SUMS_AS_OPERATORS and ours.dtype == dtype == torch.bfloat16 and kernel not in dict(MEASURING_OF_GPT3):
                assert torch.equal(ours, theirs), kernel.name


def failing(*_: Any) -> Any:
    raise RuntimeError("no compiler on this node\nmore about it")


def half(kernel: AnyKernel) -> Callable[..., Any]:
    return lambda *arguments: 0.5 * kernel.function(*arguments)


def test_kernels_that_fail_or_are_wrong_keep_their_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    instead = {swiglu: failing, swiglu_backward: half(swiglu_backward)}
    monkeypatch.setattr(kernel_proof, "compiled", lambda kernel, **_: instead.get(kernel, kernel.function))
    line, *problems = prove(LLAMA).split("; ")
    assert line.startswith("5 of 7 fused kernels compiled and proved in ")
    assert problems == [
        "swiglu NOT compiled: no compiler on this node",
        "its operators move 1.67 times the bytes",
        "swiglu_backward NOT compiled: its numbers are wrong here, 50 times the tolerance",
        "its operators move 3 times the bytes",
    ]
    assert {kernel.name for kernel, _ in kernels_of(LLAMA) if kernel.compiled is None} == {"swiglu", "swiglu_backward"}


def test_gpt3_has_the_kernels_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_proof, "compiled", lambda kernel, **_: kernel.function)
    assert prove(GPT3).startswith("2 of 2 fused kernels compiled and proved in ")
    assert [kernel.name for kernel, _ in kernels_of(GPT3)] == ["exponential_sums", "put_logits_gradient"]


MEASURED: dict[AnyKernel, tuple[Callable[..., Any], int]] = {
    gelu_and_largest: (gelu, 0),
    gelu_backward_and_largest: (gelu_backward, 0),
    swiglu_and_largest: (swiglu, 0),
    swiglu_backward_and_largest: (swiglu_backward, 0),
    rms_norm_and_largest: (lambda x, gain: (rms_norm_forward(x, gain)[0], *rms_norm_forward(x, gain)[1]), 0),
    add_and_rms_norm_and_largest: (add_and_rms_norm, 1),
    rms_norm_backward_and_add_and_largest: (rms_norm_backward_and_add, 0),
    rotated_back_and_largest: (lambda q, k, v, cosine, sine: with_rotated_heads(q, k, v, cosine, sine, True), 0),
}
"""Kernels, the functions without largest values, and the tensor of their results that is measured."""


@pytest.mark.parametrize("value", [1.0, math.nan, math.inf])
def test_largest_values_are_those_of_the_same_tensor(value: float) -> None:
    tensors = PassTensors(LLAMA, 2, 2, torch.bfloat16, CPU)
    for kernel, example in (*MEASURING_OF_GPT3, *MEASURING_OF_LLAMA):
        arguments, (plain, position) = example(tensors), MEASURED[kernel]
        arguments[0][(-1,) * arguments[0].dim()] = value
        *results, largest = kernel(*arguments)
        expected = plain(*arguments)
        expected = [expected] if isinstance(expected, torch.Tensor) else [*expected]
        torch.testing.assert_close(results, expected, rtol=0, atol=0, equal_nan=True)
        assert largest.dtype == torch.float32 and largest.dim() == 1
        found, whole = largest.amax(), results[position].abs().amax().float()
        assert torch.equal(found, whole) or not (math.isfinite(found) or math.isfinite(whole)), kernel.name
        assert kernel in FIND_LARGEST


def test_a_kernel_that_loses_a_nan_keeps_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_nan(*arguments: Any) -> Any:
        out, largest = gelu_and_largest.function(*arguments)
        return out, largest.nan_to_num(0.0)

    instead = {gelu_and_largest: without_nan}
    monkeypatch.setattr(kernel_proof, "compiled", lambda kernel, **_: instead.get(kernel, kernel.function))
    sizes = dataclasses.replace(GPT3, hidden_size=48, seq_length=16)
    line, problem, _ = prove_kernels(
        sizes, ranks=1, batch=1, dtype=torch.bfloat16, device=CPU, deterministic=False, linear="fp8"
    ).split("; ")
    assert line.startswith("8 of 9 fused kernels")
    assert problem == "gelu_and_largest NOT compiled: its numbers are wrong here, inf times the tolerance"


def test_numbers_that_are_not_finite_are_wrong() -> None:
    (arguments,) = (PassTensors(LLAMA, 1, 1, torch.float32, CPU).into_activation(),)
    problem = problem_of(swiglu, lambda x: swiglu.function(x) * float("nan"), arguments)
    assert problem.startswith("its numbers are wrong here, inf times the tolerance")
