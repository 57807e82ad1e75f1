"""The recorded forward and backward pass of the reference, and models with the weights it started from."""

import torch
from torch import Tensor

from model.gpt3 import GPT3, mean_loss, token_losses
from model.gpt3_config import GPT3Config
from model.passes.part_pass import MicroBatch
from tests.support import golden

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
