"""Forward and backward passes of the model's two ends: the embedding, and the output with the losses, in FP32 (the
reference's: docs/facts/reference.md c.2).

Written out like block_pass.py, with the same names for axes: t tokens of this rank's part of the sequence, T all
tokens (sequence first), S sequence, B batch, H hidden, V rows of a table on this rank.
"""

import math
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from model.passes.block_pass import Norm
from model.passes.tensor_group import Passing, Pending, TensorGroup, needed
from model.passes.whole_parameter import WholeParameter

LARGEST_LOGITS = 256 << 20
"""Bytes of FP32 logits at once. More tokens than that are taken in turns: without tensor parallelism 2,048 tokens of
51,200 columns are 400 MiB."""


def sequence_first(values_BS: Tensor) -> Tensor:
    """[B, S] to [T]."""
    return values_BS.t().reshape(-1)


class Softmax(NamedTuple):
    """Values that make the gradient of the token losses. The first backward pass uses them up."""

    exponentials_TV: Tensor
    """Exponentials of the logits less their maximum, FP32."""
    column_T1: Tensor
    """Column of each label, among this rank's columns."""
    here_T: Tensor | None
    """True for a label among this rank's columns; None if all labels are."""
    total_T: Tensor
    """Sum of the exponentials over all columns of all ranks."""
    dtype: torch.dtype
    """The dtype of the logits, which their gradient has, too."""


def softmax_losses(logits_TV: Tensor, labels_T: Tensor, group: dist.ProcessGroup | None) -> tuple[Tensor, Softmax]:
    """Token losses [T], FP32, and what their gradient needs; takes the memory of FP32 logits.

    They are turned into exponentials and then into the gradient in place, where PyTorch makes three more arrays of
    their size; of BF16 logits it makes one. Between ranks go the maximum, and the sum of exponentials together with the
    label's logit, per token.
    """
    highest = logits_TV.amax(dim=1, keepdim=True)
    column, here = labels_T, None
    if group is not None:
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=group)
        column = labels_T - dist.get_rank(group) * logits_TV.shape[1]
        here = (column >= 0) & (column < logits_TV.shape[1])
        column = column.masked_fill(~here, 0)
    column = column.unsqueeze(1)
    wide = torch.promote_types(logits_TV.dtype, torch.float32)
    shifted = logits_TV.to(wide).sub_(highest)
    of_label = shifted.gather(1, column).squeeze(1)
    exponentials = shifted.exp_()
    sums = torch.stack([exponentials.sum(dim=1), of_label if here is None else of_label * here])
    if group is not None:
        dist.all_reduce(sums, group=group)
    return sums[0].log() - sums[1], Softmax(exponentials, column, here, sums[0], logits_TV.dtype)


def softmax_gradient(softmax: Softmax, gradient_T: Tensor) -> Tensor:
    """Gradient of the logits [T, V]: softmax minus one at the label, times the gradient of the token's loss. Takes the
    memory of the exponentials."""
    gradient = softmax.exponentials_TV.mul_((gradient_T / softmax.total_T).unsqueeze(1))
    of_label = gradient_T if softmax.here_T is None else gradient_T * softmax.here_T
    return gradient.scatter_add_(1, softmax.column_T1, -of_label.unsqueeze(1)).to(softmax.dtype)


class EmbeddingPass:
    """Word embedding, and position embedding where the model has one. Tensor-parallel ranks have some rows of the word
    table each, and embed the words that are theirs for all; of the positions each uses those of its part of the
    sequence."""

    def __init__(self, words: WholeParameter, positions: WholeParameter | None, group: TensorGroup) -> None:
        self._words, self._positions, self._group = words, positions, group

    def forward(self, tokens_BS: Tensor) -> Passing[Tensor]:
        """Hidden state [t, H] of tokens [B, S]."""
        row_T, elsewhere_T = self._rows(tokens_BS)
        words_TH = F.embedding(row_T, self._words.value)
        if elsewhere_T is not None:
            words_TH = words_TH.masked_fill_(elsewhere_T.unsqueeze(1), 0)
        words_tH = yield from needed(self._group.reduce_scatter(words_TH))
        if self._positions is None:
            return words_tH
        batch, sequence = tokens_BS.shape
        own = self._own(self._positions.value, sequence)
        return (words_tH.view(-1, batch, words_tH.shape[1]) + own.unsqueeze(1)).view_as(words_tH)

    def backward(self, tokens_BS: Tensor, gradient_tH: Tensor, whole_gradient: Pending) -> Passing[None]:
        """Add to the gradients of the tables. ``whole_gradient``: ``gradient_tH`` of all tokens."""
        batch, sequence = tokens_BS.shape
        if self._positions is not None:
            own = self._own(self._positions.gradient, sequence)
            own.add_(gradient_tH.view(-1, batch, gradient_tH.shape[1]).sum(1, dtype=torch.float32))
        row_T, elsewhere_T = self._rows(tokens_BS)
        gradient_TH = (yield from needed(whole_gradient)).float()
        if elsewhere_T is not None:
            gradient_TH = gradient_TH.masked_fill(elsewhere_T.unsqueeze(1), 0)
        self._words.gradient.index_add_(0, row_T, gradient_TH)

    def _rows(self, tokens_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """Row of each token in this rank's part of the table, and which tokens are elsewhere; None: none is."""
        tokens_T = sequence_first(tokens_BS)
        if self._group.size == 1:
            return tokens_T, None
        rows = self._words.value.shape[0]
        elsewhere = (tokens_T // rows) != self._group.rank
        # Those of other ranks are spread over the rows, to which they add nothing: on one row, they would all wait.
        return tokens_T % rows, elsewhere

    def _own(self, positions_SH: Tensor, sequence: int) -> Tensor:
        """Rows of this rank's part of the sequence."""
        share = sequence // self._group.size
        return positions_SH.narrow(0, self._group.rank * share, share)


class OutputPass:
    """Final norm, logits by the output's table (which may be that of the words), and token losses.

    The gradient of a token's loss is known beforehand (its mask over the number of tokens that count), so in training
    forward and backward pass are one, and no logits wait for their backward pass.
    """

    def __init__(self, norm: Norm, table: WholeParameter, group: TensorGroup) -> None:
        self._norm, self._table, self._group = norm, table, group

    def refresh(self) -> None:
        self._norm.refresh()

    def losses(self, x_tH: Tensor, labels_T: Tensor) -> Passing[Tensor]:
        """Loss of each token [T], FP32."""
        normed_tH, _ = self._norm.forward(x_tH)
        normed_TH = yield from needed(self._group.gather(normed_tH))
        turns = self._turns(labels_T)
        parts = zip(normed_TH.chunk(turns), labels_T.chunk(turns), strict=True)
        return torch.cat([self._losses_of(some, labels)[0] for some, labels in parts])

    def losses_and_gradient(self, x_tH: Tensor, labels_T: Tensor, weights_T: Tensor) -> Passing[tuple[Tensor, Tensor]]:
        """Loss of each token [T], FP32, and the gradient of ``x_tH`` of their sum weighted by ``weights_T``; adds to
        the parameters' gradients."""
        normed_tH, state = self._norm.forward(x_tH)
        normed_TH = yield from needed(self._group.gather(normed_tH))
        gradient_TH = torch.empty_like(normed_TH)
        turns, losses = self._turns(labels_T), []
        every = zip(*(one.chunk(turns) for one in (normed_TH, labels_T, weights_T, gradient_TH)), strict=True)
        for some, labels, weights, gradient in every:
            each, softmax = self._losses_of(some, labels)
            logits_gradient = softmax_gradient(softmax, weights)
            torch.mm(logits_gradient, self._table.value, out=gradient)
            if turns == 1:
                terms = self._group.reduce_scatter(gradient_TH)
            self._table.add_product(logits_gradient, some)
            losses.append(each)
        if turns > 1:
            terms = self._group.reduce_scatter(gradient_TH)
        normed_gradient_tH = yield from needed(terms)
        return torch.cat(losses), self._norm.backward(normed_gradient_tH, x_tH, state)

    def _losses_of(self, normed_TH: Tensor, labels_T: Tensor) -> tuple[Tensor, Softmax]:
        return softmax_losses(torch.mm(normed_TH, self._table.value.t()), labels_T, self._group.group)

    def _turns(self, labels_T: Tensor) -> int:
        """Return the number of pieces that logits are made in, each of LARGEST_LOGITS bytes or little more."""
        return math.ceil(labels_T.shape[0] * self._table.value.shape[0] * 4 / LARGEST_LOGITS)
