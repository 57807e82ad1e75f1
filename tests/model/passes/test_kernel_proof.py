"""Kernels compiled for a CPU compute what their operators do; kernels that are wrong or fail keep their operators."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from model.decoder_sizes import DecoderSizes
from model.fused_kernel import compiled
from model.gpt3_config import GPT3Config
from model.kernels import swiglu, swiglu_backward
from model.llama31_config import Llama31Config
from model.passes import kernel_proof
from model.passes.kernel_proof import AnyKernel, PassTensors, kernels_of, problem_of, prove_kernels

LLAMA = Llama31Config(1, 64, 8, 32, 90, 96, num_key_value_heads=2, ffn_hidden_size=80)
GPT3 = GPT3Config(1, 24, 3, 8, 90, 96)
CPU = torch.device("cpu")
SUMS_AS_OPERATORS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
"""Before PyTorch 2.13 inductor sums in an order in which a BF16 result can be rounded otherwise."""


@pytest.fixture(autouse=True)
def operators_afterwards() -> Iterator[None]:
    yield
    for kernel, _ in kernels_of(LLAMA):
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
    """By inductor's C++ backend without vectors: BF16 results to the bit, the sums of rows and columns in another
    order. FP32 takes the way of float64, whose tolerance is a thousand millionth of its own."""
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(inductor_cache))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    shapes = PassTensors(LLAMA, 1, 2, dtype, CPU)
    for kernel, example in kernels_of(LLAMA):
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
            if SUMS_AS_OPERATORS and dtype == torch.bfloat16 and ours.dtype == dtype:
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


def test_numbers_that_are_not_finite_are_wrong() -> None:
    (arguments,) = (PassTensors(LLAMA, 1, 1, torch.float32, CPU).into_swiglu(),)
    problem = problem_of(swiglu, lambda x: swiglu.function(x) * float("nan"), arguments)
    assert problem.startswith("its numbers are wrong here, inf times the tolerance")
