"""The model against the recorded forward and backward pass of the reference."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmark.training.engine.micro_batches import MicroBatch, micro_batch
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from model.cpu_bf16 import Bf16ByFp32
from model.flops import num_parameters, train_flops_per_token
from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config
from model.losses import token_losses
from stage.errors import InputError
from tests.support import SHARED_GOLDEN, golden, make_paxml, needs_shared

RECORDED = golden("model.json")
SIZES = GPT3Config(
    num_layers=4, hidden_size=128, num_attention_heads=4, seq_length=128, vocab_size=512, padded_vocab_size=512
)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """The converted checkpoint "sane", which the recorded pass started from."""
    folder = tmp_path_factory.mktemp("sane")
    source = make_paxml(folder / "paxml", golden("convert.json")["fp32_sane"]["gen_paxml"])
    paxml_to_megatron(source, folder / "megatron", dtype="fp32", workers=2, memory_limit=1 << 30)
    model = GPT3(SIZES)
    MegatronCheckpoint(folder / "megatron").load_weights(dict(model.named_parameters()))
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def build(weights: dict[str, Tensor], dtype: torch.dtype) -> GPT3:
    model = GPT3(SIZES)
    model.load_state_dict(weights)
    return model.to(dtype)


@pytest.fixture(scope="module")
def batch() -> MicroBatch:
    return micro_batch(np.array(RECORDED["text"]), np.array(RECORDED["dummy_sample"], dtype=bool))


def mean_loss(logits: Tensor, batch: MicroBatch) -> Tensor:
    mask = batch.loss_mask.to(logits.dtype)
    return (token_losses(logits, batch.labels) * mask).sum() / mask.sum()


def test_logits_in_float64(weights: dict[str, Tensor], batch: MicroBatch) -> None:
    logits = build(weights, torch.float64)(batch.tokens)
    np.testing.assert_allclose(logits[:, ::16, ::8].detach().numpy(), RECORDED["logits"], rtol=0, atol=1e-8)


def test_loss_and_gradients_in_float32(weights: dict[str, Tensor], batch: MicroBatch) -> None:
    model = build(weights, torch.float32)
    loss = mean_loss(model(batch.tokens), batch)
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
    mean_loss(logits, batch).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(
            parameter.grad.numpy(), recorded[f"grad/language_model.{name}"], rtol=0, atol=1e-6, err_msg=name
        )


def test_bf16_by_fp32_rounds_where_bf16_does(weights: dict[str, Tensor], batch: MicroBatch) -> None:
    """Against PyTorch's own BF16 kernels, and both against FP32: the difference is BF16's rounding, not ours."""
    results: dict[str, tuple[Tensor, Tensor]] = {}
    for name in ("fp32", "native", "by_fp32"):
        model = build(weights, torch.float32 if name == "fp32" else torch.bfloat16)
        with Bf16ByFp32() if name == "by_fp32" else torch.enable_grad():
            logits = model(batch.tokens)
        mean_loss(logits, batch).backward()  # type: ignore[no-untyped-call]
        gradient = model.encoder.layers["2"].mlp.dense_h_to_4h.weight.grad  # type: ignore[union-attr]
        assert isinstance(gradient, Tensor)
        assert (logits.dtype == torch.bfloat16) is (gradient.dtype == torch.bfloat16) is (name != "fp32")
        results[name] = logits.float(), gradient.float()
    for part in range(2):
        error = [(results[name][part] - results["fp32"][part]).square().mean().sqrt() for name in ("native", "by_fp32")]
        assert 0 < error[1] < 1.5 * error[0]


def test_position_beyond_the_table_is_refused() -> None:
    with pytest.raises(InputError, match="seq_length 4096 exceeds max_position_embeddings 2048"):
        GPT3Config(2, 32, 4, 4096, 100, 128)
    with pytest.raises(InputError, match="hidden_size 30 is not a multiple of num_attention_heads 4"):
        GPT3Config(2, 30, 4, 16, 100, 128)
    with pytest.raises(InputError, match="padded_vocab_size 64 is less than vocab_size 100"):
        GPT3Config(2, 32, 4, 16, 100, 64)


def test_sizes_of_the_benchmark() -> None:
    config: Any = GPT3Config(96, 12288, 96, 2048, 50257, 51200)
    assert num_parameters(config) == 174_615_846_912
    assert train_flops_per_token(config) == pytest.approx(1.0764e12, rel=1e-4)
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in GPT3(config).parameters()) == num_parameters(config)


def test_model_file_stays_readable() -> None:
    assert len((Path(__file__).parents[2] / "model" / "gpt3.py").read_text().splitlines()) <= 250
