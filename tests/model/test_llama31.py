"""Llama 3.1's plain page against Hugging Face's model: same weights by the same names, same numbers."""

import dataclasses

import pytest
import torch

from model.decoder_sizes import UnfitSizes
from model.flops import num_parameters, train_flops_per_token
from model.gpt3 import mean_loss, token_losses
from model.llama31 import Llama31, rope_angles
from model.llama31_config import Llama31Config

SIZES = Llama31Config(
    num_layers=2,
    hidden_size=48,
    num_attention_heads=6,
    seq_length=40,
    vocab_size=100,
    padded_vocab_size=100,
    num_key_value_heads=2,
    ffn_hidden_size=80,
)
EIGHT_BILLION = Llama31Config(32, 4096, 32, 8192, 128256, 128256, 8, 14336)


def _pair() -> tuple[Llama31, torch.nn.Module]:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=SIZES.vocab_size,
        hidden_size=SIZES.hidden_size,
        intermediate_size=SIZES.ffn_hidden_size,
        num_hidden_layers=SIZES.num_layers,
        num_attention_heads=SIZES.num_attention_heads,
        num_key_value_heads=SIZES.num_key_value_heads,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    torch.manual_seed(1)
    theirs = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours = Llama31(SIZES)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def test_logits_and_gradients_are_those_of_hugging_face() -> None:
    ours, theirs = _pair()
    tokens = torch.randint(SIZES.vocab_size, (3, SIZES.seq_length), generator=torch.Generator().manual_seed(2))
    labels, mask = tokens.roll(-1, 1), torch.ones(tokens.shape)
    mask[:, -1] = 0
    results, due_logits = ours(tokens), theirs(input_ids=tokens).logits
    largest = due_logits.detach().abs().max().item()
    assert largest > 1
    torch.testing.assert_close(results, due_logits, rtol=0, atol=2e-6 * largest)
    for logits in (results, due_logits):
        mean_loss(token_losses(logits, labels), mask).backward()  # type: ignore[no-untyped-call]
    due = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        expected = due[name].grad
        assert expected is not None
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=5e-6 * float(expected.abs().max()))


def test_the_angles_are_those_of_hugging_face_at_full_size() -> None:
    """Where turns are slowed down, too, which short contexts hardly show."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    scaling = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
    scaling |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = transformers.LlamaConfig(
        hidden_size=4096, num_attention_heads=32, max_position_embeddings=131072, rope_parameters=scaling
    )
    rotary = LlamaRotaryEmbedding(config)
    cosine, sine = rotary(torch.zeros(1), torch.arange(8192)[None])
    angles = rope_angles(8192, 128)
    for ours, theirs in ((angles.cos(), cosine), (angles.sin(), sine)):
        torch.testing.assert_close(torch.cat([ours, ours], dim=-1), theirs[0], rtol=0, atol=1e-3)
    speeds = angles[1]
    torch.testing.assert_close(speeds, rotary.inv_freq, rtol=3e-7, atol=0)


def test_it_has_eight_billion_parameters() -> None:
    with torch.device("meta"):
        assert sum(one.numel() for one in Llama31(EIGHT_BILLION).parameters()) == num_parameters(EIGHT_BILLION)
    assert num_parameters(EIGHT_BILLION) == 8_030_261_248


def test_flops_of_a_sample() -> None:
    assert train_flops_per_token(EIGHT_BILLION) * 8192 == pytest.approx(474.4e12, rel=1e-3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_key_value_heads": 4}, "num_attention_heads 6 is not a multiple of num_key_value_heads 4"),
        ({"num_key_value_heads": 0}, "num_key_value_heads 0: expected 1 to 16,777,216; change --num-key-value-heads"),
        ({"ffn_hidden_size": 1 << 40}, "ffn_hidden_size 1099511627776: expected 1 to"),
        ({"hidden_size": 54}, "heads of 9; the rotary embedding rotates pairs"),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(UnfitSizes, match=message):
        dataclasses.replace(SIZES, **fields)
