"""From the last hidden state to the loss of each token, in FP32, a part of the logits at a time.

The reference's loss: docs/facts/reference.md c.2. Tensors are named by their axes: B batch, S sequence, H hidden, V
padded vocabulary, T some of the B x S tokens.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LARGEST_LOGITS = 256 << 20
"""Bytes of FP32 logits at once. More tokens than that are taken in turns, whose logits are computed again in the
backward pass: 2 V H more FLOPs per token, 0.12 % of the 175B model's. Without tensor parallelism 2,048 tokens of 51,200
columns are 400 MiB."""


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
    return cross_entropy(logits_BSV.flatten(0, -2).clone(), labels_BS.flatten(), None).view_as(labels_BS)


def cross_entropy(logits_TV: Tensor, labels_T: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The same over [T, V], whose memory it takes; with ``group``, each of its ranks has some of the columns, in the
    order of ranks."""
    losses: Tensor = _CrossEntropy.apply(logits_TV, labels_T, group)  # type: ignore[no-untyped-call]
    return losses


def _losses(x_TH: Tensor, weight_VH: Tensor, labels_T: Tensor) -> Tensor:
    return cross_entropy(F.linear(x_TH, weight_VH), labels_T, None)


class _CrossEntropy(torch.autograd.Function):
    """FP32 logits are turned into exponentials and then into the gradient in place, where PyTorch makes three more
    arrays of their size; of BF16 logits it makes one. Between ranks go the maximum, and the sum of exponentials
    together with the label's logit, per token."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        highest = logits.amax(dim=1, keepdim=True)
        column, here = labels, None
        if group is not None:
            dist.all_reduce(highest, dist.ReduceOp.MAX, group=group)
            column = labels - dist.get_rank(group) * logits.shape[1]
            here = (column >= 0) & (column < logits.shape[1])
            column = column.masked_fill(~here, 0)
        column = column.unsqueeze(1)
        wide = torch.promote_types(logits.dtype, torch.float32)
        shifted = logits.to(wide).sub_(highest)
        of_label = shifted.gather(1, column).squeeze(1)
        exponentials = shifted.exp_()
        sums = torch.stack([exponentials.sum(dim=1), of_label if here is None else of_label * here])
        if group is not None:
            dist.all_reduce(sums, group=group)
        ctx.dtype, ctx.here, ctx.spent = logits.dtype, here, False
        ctx.save_for_backward(exponentials, column, sums[0])
        return sums[0].log() - sums[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Softmax minus one at the label, times the gradient of the token's loss."""
        assert not ctx.spent, (
            "a second backward pass through the same losses: what it needs was turned into the first's"
        )
        ctx.spent = True
        exponentials, column, total = ctx.saved_tensors
        (gradient,) = gradients
        exponentials.mul_((gradient / total).unsqueeze(1))
        of_label = gradient if ctx.here is None else gradient * ctx.here
        return exponentials.scatter_add_(1, column, -of_label.unsqueeze(1)).to(ctx.dtype), None, None
