"""Attention and its backward pass against autograd through PyTorch's own, and which kernel is taken when."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.passes import attention
from model.passes.attention import (
    CpuFlash,
    CudnnFlash,
    Flash,
    Kernel,
    MemoryEfficient,
    PlainKernel,
    Repeated,
    attend,
    choose_kernel,
)

SEQUENCE, HEADS, SIZE = 12, 3, 8


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """A kernel that was chosen in one test is not in the next."""
    choose_kernel.cache_clear()
    yield
    choose_kernel.cache_clear()


def by_autograd(qkv: Tensor, batch: int, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Output [S x B, N x D] and gradient of ``qkv`` [S x B, N x 3 x D], by products, softmax and products in FP64."""
    wide = qkv.double().requires_grad_()
    q, k, v = wide.view(-1, batch, HEADS, 3, SIZE).permute(3, 1, 2, 0, 4)
    with sdpa_kernel(SDPBackend.MATH):
        out_BNSD = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out = out_BNSD.permute(2, 0, 1, 3).reshape(-1, HEADS * SIZE)
    (gradient,) = torch.autograd.grad(out, wide, upstream.double())
    return out.detach(), gradient


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("batch", [1, 2])
def test_output_and_gradient_are_those_of_autograd(dtype: torch.dtype, tolerance: float, batch: int) -> None:
    random = torch.Generator().manual_seed(1)
    qkv = torch.randn(SEQUENCE * batch, HEADS * 3 * SIZE, generator=random, dtype=torch.float64).to(dtype)
    upstream = torch.randn(SEQUENCE * batch, HEADS * SIZE, generator=random, dtype=torch.float64).to(dtype)
    heads = attend(qkv, batch, HEADS)
    out, gradient = by_autograd(qkv, batch, upstream)
    for ours, theirs in ((heads.out(), out), (heads.backward(upstream), gradient)):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sequence", [12, 64, 150])
def test_gradient_by_blocks_of_keys_is_that_of_autograd(sequence: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In BF16, where PyTorch's own kernel is up to 0.004 off."""
    monkeypatch.setattr(attention, "SHORT_ON_CPU", 0)
    monkeypatch.setattr(attention, "cpu_has_bf16", lambda: True)
    random = torch.Generator().manual_seed(1)
    qkv, upstream = (torch.randn(sequence * 2, HEADS * parts * SIZE, generator=random).bfloat16() for parts in (3, 1))
    _, expected = by_autograd(qkv, 2, upstream)
    difference = attend(qkv, 2, HEADS).backward(upstream).double() - expected
    assert difference.norm() / expected.norm() < 0.003


GPU_KERNELS = [
    (Flash, torch.bfloat16),
    (CudnnFlash, torch.bfloat16),
    (MemoryEfficient, torch.float32),
    (MemoryEfficient, torch.bfloat16),
]


@pytest.mark.parametrize(("kind", "dtype"), [*GPU_KERNELS, (CpuFlash, torch.float32)])
def test_kernels_are_called_as_pytorch_declares_them(
    kind: type[PlainKernel], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tensors that have shapes and no values: forward and backward."""
    monkeypatch.setattr(attention, "choose_kernel", lambda *_: kind())
    device = "cpu" if kind is CpuFlash else "cuda"
    with FakeTensorMode(), torch.no_grad():
        heads = attend(torch.empty(256, 4 * 3 * 64, dtype=dtype, device=device), 2, 4)
        out = heads.out()
        gradient = heads.backward(torch.empty_like(out))
    assert (out.shape, out.dtype, out.device.type) == ((256, 4 * 64), dtype, device)
    assert (gradient.shape, gradient.dtype, gradient.device.type) == ((256, 4 * 3 * 64), dtype, device)


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        (CudnnFlash(), torch.bfloat16),
        (Flash(), torch.bfloat16),
        (Repeated(CudnnFlash()), torch.bfloat16),
        (Repeated(MemoryEfficient()), torch.float32),
    ],
)
def test_kernels_take_fewer_heads_of_keys(kernel: Kernel, dtype: torch.dtype) -> None:
    """On tensors that have shapes and no values: as many gradients as heads."""
    with FakeTensorMode(), torch.no_grad():
        q, k = (torch.empty(2, heads, 256, 64, dtype=dtype, device="cuda") for heads in (8, 2))
        attended = kernel.forward(q, k, k)
        gradients = kernel.backward(attended.out_BNSD, q, k, k, attended)
    assert [gradient.shape for gradient in (attended.out_BNSD, *gradients)] == [q.shape, q.shape, k.shape, k.shape]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.bfloat16, 2e-2)])
def test_shared_keys_have_the_gradients_of_all_their_queries(dtype: torch.dtype, tolerance: float) -> None:
    random = torch.Generator().manual_seed(1)
    q, upstream = torch.randn(2, 2, 8, SEQUENCE, SIZE, generator=random, dtype=torch.float64).to(dtype)
    k, v = torch.randn(2, 2, 2, SEQUENCE, SIZE, generator=random, dtype=torch.float64).to(dtype)
    wide = q_wide, k_wide, v_wide = [x.double().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.MATH):
        out = F.scaled_dot_product_attention(q_wide, k_wide, v_wide, is_causal=True, enable_gqa=True)
    expected = torch.autograd.grad(out, wide, upstream.double())
    for kernel in (CpuFlash(), Repeated(CpuFlash())):
        gradients = kernel.backward(upstream, q, k, v, kernel.forward(q, k, v))
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours.double(), theirs, rtol=4 * tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("step", ["forward", "backward"])
def test_keys_are_repeated_for_a_kernel_that_does_not_share_them(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = getattr(CudnnFlash, step)

    def failing(self: CudnnFlash, *tensors: Any) -> Any:
        if len({tensor.shape for tensor in tensors[:3]}) > 1:
            raise RuntimeError("as many heads of keys as of queries, please")
        return usual(self, *tensors)

    monkeypatch.setattr(CudnnFlash, step, failing)
    with FakeTensorMode(), torch.no_grad():
        assert choose_kernel("cuda", torch.bfloat16, 64, 32, False, 4) == Repeated(CudnnFlash())


def break_kernels(monkeypatch: pytest.MonkeyPatch, step: str, *kinds: type[Kernel]) -> None:
    """``step``: forward or backward, in which they fail."""

    def failing(*_: Any) -> Any:
        raise RuntimeError("no such kernel")

    for kind in kinds:
        monkeypatch.setattr(kind, step, failing)


@pytest.mark.parametrize(
    ("dtype", "deterministic", "kind"),
    [
        (torch.bfloat16, False, CudnnFlash),
        (torch.bfloat16, True, Flash),
        (torch.float32, False, MemoryEfficient),
        (torch.float32, True, MemoryEfficient),
    ],
)
def test_first_choice_of_a_gpu(dtype: torch.dtype, deterministic: bool, kind: type[Kernel]) -> None:
    with FakeTensorMode(), torch.no_grad():
        assert type(choose_kernel("cuda", dtype, 64, 32, deterministic)) is kind


@pytest.mark.parametrize("step", ["forward", "backward"])
def test_a_kernel_that_does_not_run_is_passed_over(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_kernels(monkeypatch, step, CudnnFlash)
    with FakeTensorMode(), torch.no_grad():
        assert type(choose_kernel("cuda", torch.bfloat16, 64, 32, False)) is Flash


def test_where_no_kernel_runs_the_last_one_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    break_kernels(monkeypatch, "forward", CudnnFlash, Flash)
    with FakeTensorMode(), torch.no_grad(), pytest.raises(RuntimeError, match="no such kernel"):
        attend(torch.empty(64, 3 * 32, dtype=torch.bfloat16, device="cuda"), 1, 1)


def test_a_cpu_has_one_kernel_and_a_choice_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(choose_kernel("cpu", torch.bfloat16, 64, 32, True)) is CpuFlash
    asked: list[tuple[int, ...]] = []

    def forward(_: CudnnFlash, q: Tensor, k: Tensor, v: Tensor) -> Any:
        asked.append(tuple(q.shape))
        raise RuntimeError

    monkeypatch.setattr(CudnnFlash, "forward", forward)
    with FakeTensorMode(), torch.no_grad():
        kernels = {id(choose_kernel("cuda", torch.bfloat16, 64, 32, False)) for _ in range(3)}
    assert asked == [(1, 1, 64, 32)]
    assert len(kernels) == 1
