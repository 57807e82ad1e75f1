"""Kernels: PyTorch's against float64, apex's against PyTorch's where there is one, and the choice between them."""

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model import kernels
from model.llama31 import RmsNorm

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
OPTIONS: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What was found importable in one test is not in the next."""
    yield
    kernels.apex_adam.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    """A stand-in for a package and its modules."""
    for end in range(1, name.count(".") + 2):
        part = ".".join(name.split(".")[:end])
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    for attribute, value in contents.items():
        monkeypatch.setattr(sys.modules[name], attribute, value, raising=False)


def install_cuda_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the part of apex that its Adam needs."""
    module = ModuleType("amp_C")
    module.__spec__ = ModuleSpec("amp_C", None)
    monkeypatch.setitem(sys.modules, "amp_C", module)


def test_apex_is_used_where_it_is_importable_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    install_cuda_part(monkeypatch)
    install(monkeypatch, "apex.optimizers", FusedAdam=lambda shards, **options: calls.append(options))
    on_gpu: Any = SimpleNamespace(is_cuda=True)
    kernels.adam([on_gpu], **OPTIONS)
    assert calls.pop() == {"adam_w_mode": True, "bias_correction": True, **OPTIONS}
    assert isinstance(kernels.adam([torch.zeros(2)], **OPTIONS), torch.optim.AdamW)
    assert not calls


def test_apex_without_its_cuda_parts_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "apex.optimizers", FusedAdam=object)
    assert kernels.apex_adam() is None


def test_another_package_called_apex_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    install_cuda_part(monkeypatch)
    install(monkeypatch, "apex")  # has no optimizers, like PyPI's
    assert kernels.apex_adam() is None


@pytest.mark.skipif(not torch.cuda.is_available() or kernels.apex_adam() is None, reason="no NVIDIA apex here")
def test_apex_computes_what_pytorch_does() -> None:
    """Adam in FP32 to 1e-6 after 20 steps."""
    x = torch.randn((64, 1024), generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    weights = [x.clone(), x.clone()]
    optimizers = [kernels.adam([weights[0]], **OPTIONS), torch.optim.AdamW([weights[1]], fused=True, **OPTIONS)]
    for step in range(20):
        for weight, optimizer in zip(weights, optimizers, strict=True):
            weight.grad = torch.sin(x + step)
            optimizer.step()
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-6, atol=1e-6)


def _draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "tolerance_of_sums"),
    [(torch.float64, 1e-13, 1e-12), (torch.float32, 1e-5, 1e-4), (torch.bfloat16, 0.02, 1e-4)],
)
def test_layer_norm_and_its_gradients_are_those_of_autograd(
    dtype: torch.dtype, tolerance: float, tolerance_of_sums: float
) -> None:
    """Of 2,048 rows. Their sums are not those of BF16 numbers, nor are the statistics of each."""
    x, gain, bias = (one.to(dtype) for one in (_draw(2048, 16, seed=1), _draw(16, seed=2), _draw(16, seed=3)))
    upstream = _draw(2048, 16, seed=4).to(dtype)
    wide = [one.double().requires_grad_() for one in (x, gain, bias)]
    expected = F.layer_norm(wide[0], (16,), wide[1], wide[2], 1e-5)
    out, state = kernels.layer_norm_forward(x, gain, bias)
    of_x, *sums = kernels.layer_norm_backward(upstream, x, state, gain, bias)
    expected_of_x, *expected_sums = torch.autograd.grad(expected, wide, upstream.double())
    assert out.dtype == of_x.dtype == dtype
    for ours, theirs in ((out, expected), (of_x, expected_of_x)):
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(sums, expected_sums, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance_of_sums, atol=tolerance_of_sums)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_rms_norm_rounds_once(device: str) -> None:
    """To the bit, passes and page compute what PyTorch's own function does; of two roundings a quarter differ."""
    x = _draw(64, 128, seed=1).to(device, torch.bfloat16)
    page = RmsNorm(128).to(device, torch.bfloat16)
    with torch.no_grad():
        page.weight.copy_(1 + 0.3 * _draw(128, seed=2))
        expected = F.rms_norm(x, (128,), page.weight, kernels.RMS_NORM_EPSILON)
        out, _ = kernels.rms_norm_forward(x, page.weight)
        assert torch.equal(out, expected)
        assert torch.equal(page(x), expected)
        rounded_twice = page.weight * F.rms_norm(x, (128,), eps=kernels.RMS_NORM_EPSILON)
    assert 0.2 < (rounded_twice != expected).float().mean() < 0.3


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_summed_in_fp32(dtype: torch.dtype, device: str) -> None:
    """1,024 and 1 are numbers of BF16, and their sum is not. On a GPU neither is the product rounded."""
    ones = torch.ones(1025, 3, dtype=dtype, device=device)
    sums = torch.full((3, 3), 7.0, device=device)
    kernels.put_product(sums, ones[:1024], ones[:1024])
    assert (sums == 1024).all()
    kernels.add_product(sums, ones[:1], ones[:1])
    assert (sums == 1025).all()
    kernels.put_product(sums, ones, ones)
    rounded = dtype == torch.bfloat16 and device == "cpu"
    assert (sums == (1024 if rounded else 1025)).all()
