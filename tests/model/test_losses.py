"""Token losses and their gradient against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F
from model.losses import softmax_gradient, softmax_losses
from torch import Tensor

T, V = 32, 50


def example(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels and the gradient of each loss."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(T, V, generator=generator, dtype=torch.float64).to(dtype)
    return logits, torch.randint(V, (T,), generator=generator), torch.rand(T, generator=generator)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 3e-2)]
)
def test_losses_and_gradients(dtype: torch.dtype, tolerance: float) -> None:
    logits, labels, upstream = example(dtype)
    leaf = logits.double().requires_grad_()
    expected = F.cross_entropy(leaf, labels, reduction="none")
    (gradient,) = torch.autograd.grad(expected, leaf, upstream.double())
    losses, softmax = softmax_losses(logits.clone(), labels, None)
    assert losses.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    found = softmax_gradient(softmax, upstream.to(losses.dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=min(tolerance, 2e-6), atol=min(tolerance, 2e-6))
    torch.testing.assert_close(found.double(), gradient, rtol=tolerance, atol=tolerance)


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-3e4, -3e4, -3e4]])
    losses, _ = softmax_losses(logits.clone(), torch.tensor([0, 1]), None)
    torch.testing.assert_close(losses, torch.tensor([0.0, 1.0986123]))
