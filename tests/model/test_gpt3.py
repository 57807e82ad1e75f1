"""The model against the recorded forward and backward pass of the reference."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from model.gpt3 import mean_loss, token_losses
from model.passes.part_pass import MicroBatch
from tests.model.recorded import RECORDED, build, loss_of
from tests.support import SHARED_GOLDEN, needs_shared


def test_logits_in_float64(weights: dict[str, Tensor], batch: MicroBatch) -> None:
    logits = build(weights, torch.float64)(batch.tokens)
    np.testing.assert_allclose(logits[:, ::16, ::8].detach().numpy(), RECORDED["logits"], rtol=0, atol=1e-8)


def test_loss_and_gradients_in_float32(weights: dict[str, Tensor], batch: MicroBatch) -> None:
    model = build(weights, torch.float32)
    loss = loss_of(model(batch.tokens), batch)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(RECORDED["loss"], abs=1e-6)
    assert {name for name, _ in model.named_parameters()} == set(RECORDED["gradients"])
    square_sum = 0.0
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        gradient = parameter.grad.double()
        norm, total = RECORDED["gradients"][name]
        assert gradient.norm().item() == pytest.approx(norm, rel=1e-6), name
        assert gradient.sum().item() == pytest.approx(total, abs=1e-5), name
        square_sum += gradient.square().sum().item()
    assert square_sum**0.5 == pytest.approx(RECORDED["grad_norm"], rel=1e-6)


@needs_shared
def test_every_number_of_the_recorded_pass(weights: dict[str, Tensor], batch: MicroBatch) -> None:
    recorded = np.load(SHARED_GOLDEN / "model" / "gpt_fp32.npz")
    for name, tensor in (("tokens", batch.tokens), ("labels", batch.labels), ("loss_mask", batch.loss_mask)):
        np.testing.assert_array_equal(tensor.numpy(), recorded[name])
    wide = build(weights, torch.float64)(batch.tokens).detach().numpy()
    np.testing.assert_allclose(wide, recorded["logits_float64_run"], rtol=0, atol=1e-8)
    model = build(weights, torch.float32)
    logits = model(batch.tokens)
    np.testing.assert_allclose(logits.detach().numpy(), recorded["logits"], rtol=0, atol=1e-6)
    losses = token_losses(logits, batch.labels)
    np.testing.assert_allclose(losses.detach().numpy(), recorded["losses"], rtol=0, atol=2e-6)
    loss_of(logits, batch).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(
            parameter.grad.numpy(), recorded[f"grad/language_model.{name}"], rtol=0, atol=1e-6, err_msg=name
        )


def test_losses_of_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[[1e4, -1e4, 0.0], [-3e4, -3e4, -3e4]]])
    torch.testing.assert_close(token_losses(logits, torch.tensor([[0, 1]])), torch.tensor([[0.0, 1.0986123]]))


def test_mean_loss_is_over_the_tokens_that_count() -> None:
    losses, mask = torch.tensor([[1.0, 2.0], [4.0, 99.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    assert mean_loss(losses, mask).item() == pytest.approx(7 / 3)


def test_model_file_stays_readable() -> None:
    assert len((Path(__file__).parents[2] / "model" / "gpt3.py").read_text().splitlines()) <= 250
