"""The model against the recorded forward and backward pass of the reference."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmark.training.engine.micro_batches import micro_batch
from checkpoint_convert.formats.array_table import ARRAYS, groups
from checkpoint_convert.formats.axis_sizes import paxml_axis_sizes
from model.gpt3 import GPT3, mean_loss, token_losses
from model.gpt3_config import GPT3Config
from model.passes.chunk_pass import MicroBatch
from tests.checkpoint_convert.tiny import read
from tests.support import golden, make_paxml

RECORDED = golden("model.json")
SIZES = GPT3Config(
    num_layers=4, hidden_size=128, num_attention_heads=4, seq_length=128, vocab_size=512, padded_vocab_size=512
)


def build(weights: dict[str, Tensor], dtype: torch.dtype) -> GPT3:
    model = GPT3(SIZES)
    model.load_state_dict(weights)
    return model.to(dtype)


def loss_of(logits: Tensor, batch: MicroBatch) -> Tensor:
    return mean_loss(token_losses(logits, batch.labels), batch.loss_mask.to(logits.dtype))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """The checkpoint "sane", which the recorded pass started from, in our layout."""
    source = make_paxml(tmp_path_factory.mktemp("sane") / "paxml", golden("convert.json")["fp32_sane"]["gen_paxml"])
    of_weights = groups("fp32")[0]
    stored = {array: read(source / of_weights.paxml_name(array)) for array in ARRAYS}
    axes = paxml_axis_sizes("sane", {array: values.shape for array, values in stored.items()})
    results = dict[str, Tensor]()
    for array, values in stored.items():
        shape = array.megatron_shape(axes)
        gathered = torch.from_numpy(values.transpose(array.permutation()).reshape(-1, *shape[1:])[: shape[0]].copy())
        results |= {
            array.parameter(layer): gathered[layer] if array.stacked else gathered for layer in range(axes["L"])
        }
    return results


@pytest.fixture(scope="module")
def batch() -> MicroBatch:
    return micro_batch(np.array(RECORDED["text"]), np.array(RECORDED["dummy_sample"], dtype=bool))


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


def test_mean_loss_is_over_the_tokens_that_count() -> None:
    losses, mask = torch.tensor([[1.0, 2.0], [4.0, 99.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    assert mean_loss(losses, mask).item() == pytest.approx(7 / 3)


def test_model_file_stays_readable() -> None:
    assert len((Path(__file__).parents[2] / "model" / "gpt3.py").read_text().splitlines()) <= 250
