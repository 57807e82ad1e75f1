"""From the last hidden state to the loss of each token, in FP32, a part of the logits at a time (reference facts c.2).

Tensors are named by their axes: B batch, S sequence, H hidden, V padded vocabulary, T some of the B x S tokens.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LARGEST_LOGITS = 256 << 20
"""Bytes of FP32 logits at once. More tokens than that are taken in turns, whose logits are computed again in the
backward pass: 4 V H more FLOPs per token, 0.3 % of the 175B model's, for 1.2 GB less at 2,048 tokens."""


class OutputLayer(nn.Module):
    """Logits by the word embedding's table, which has no bias, and the token losses by them."""

    def forward(self, x_BSH: Tensor, weight_VH: Tensor, labels_BS: Tensor | None) -> Tensor:
        if labels_BS is None:
            return F.linear(x_BSH, weight_VH)
        return in_turns(_losses, x_BSH, weight_VH, labels_BS)


def in_turns(
    losses: Callable[[Tensor, Tensor, Tensor], Tensor], x_BSH: Tensor, weight: Tensor, labels: Tensor
) -> Tensor:
    """``losses(x_TH, weight, labels_T)`` over all tokens, [B, S], never with more than ``LARGEST_LOGITS`` of logits."""
    turns = math.ceil(labels.numel() * weight.shape[0] * 4 / LARGEST_LOGITS)
    x_TH, labels_T = x_BSH.flatten(0, 1), labels.flatten()
    if turns == 1:
        return losses(x_TH, weight, labels_T).view_as(labels).clone()  # FSDP2 cannot hook a view
    parts = [
        checkpoint(losses, x, weight, some, use_reentrant=False, preserve_rng_state=False)
        for x, some in zip(x_TH.chunk(turns), labels_T.chunk(turns), strict=True)
    ]
    return torch.cat(parts).view_as(labels).clone()


def token_losses(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Negative log likelihood of each label in nats, [B, S], in FP32 from logits of any dtype.

    FP64 logits stay FP64, for comparisons.
    """
    wide = logits_BSV if logits_BSV.dtype == torch.float64 else logits_BSV.float()
    return F.cross_entropy(wide.flatten(0, -2), labels_BS.flatten(), reduction="none").view_as(labels_BS)


def _losses(x_TH: Tensor, weight_VH: Tensor, labels_T: Tensor) -> Tensor:
    return token_losses(F.linear(x_TH, weight_VH), labels_T)
