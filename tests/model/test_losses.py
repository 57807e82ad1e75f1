"""Token losses and their gradients against PyTorch's own, whole and in turns."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model import losses
from model.losses import OutputLayer, cross_entropy, token_losses

B, S, H, V = 2, 16, 8, 50


def example(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(B, S, H, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(V, H, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return x, weight, torch.randint(V, (B, S), generator=generator)


def expected(x: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    wide = F.linear(x, weight)
    wide = wide if wide.dtype == torch.float64 else wide.float()
    each = F.cross_entropy(wide.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    return (each, *torch.autograd.grad((each * each.detach()).sum(), (x, weight)))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 3e-2)]
)
@pytest.mark.parametrize("turns", [1, 3])
def test_losses_and_gradients(
    dtype: torch.dtype, tolerance: float, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "LARGEST_LOGITS", 4 * V * B * S // turns)
    x, weight, labels = example(dtype)
    each = OutputLayer()(x, weight, labels)
    found = (each, *torch.autograd.grad((each * each.detach()).sum(), (x, weight)))
    for ours, theirs in zip(found, expected(x, weight, labels), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    assert each.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[[1e4, -1e4, 0.0], [-3e4, -3e4, -3e4]]])
    labels = torch.tensor([[0, 1]])
    torch.testing.assert_close(token_losses(logits, labels), torch.tensor([[0.0, 1.0986123]]))
    assert logits[0, 0, 0] == 1e4  # what the caller gave is not changed


def test_second_backward_pass_is_an_error_not_a_wrong_gradient() -> None:
    logits = torch.zeros(2, 3, requires_grad=True)
    loss = cross_entropy(logits * 1.0, torch.tensor([0, 1]), None).sum()
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    with pytest.raises(AssertionError, match="second backward pass"):
        loss.backward()  # type: ignore[no-untyped-call]
