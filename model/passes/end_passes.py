"""Forward and backward passes of embedding and output.

Tensors are named by their axes, as in block_pass.py: t tokens of this rank's part of the sequence, T all
tokens (sequence first), S sequence, B batch, H hidden, V rows of a table on this rank.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from model.passes.block_pass import Norm
from model.passes.pass_sizes import LARGEST_PRODUCT, LARGEST_TILE, TILE_ON_CPU, rows_of_part
from model.passes.softmax_loss import Softmax, softmax_gradient, softmax_losses
from model.passes.tensor_group import Passing, Pending, TensorGroup, result_of
from model.passes.whole_parameter import WholeParameter


def sequence_first(values_BS: Tensor) -> Tensor:
    """[B, S] to [T]."""
    return values_BS.t().reshape(-1)


class EmbeddingPass:
    """Word embedding, and position embedding where the model has one.

    Each tensor-parallel rank has some rows of the word table, and embeds the tokens of these rows for all ranks. Each
    uses the positions of its part of the sequence.
    """

    def __init__(self, words: WholeParameter, positions: WholeParameter | None, group: TensorGroup) -> None:
        self._words, self._positions, self._group = words, positions, group

    def forward(self, tokens_BS: Tensor) -> Passing[Tensor]:
        """Return the hidden state [t, H] of tokens [B, S]."""
        row_T, elsewhere_T = self._rows(tokens_BS)
        words_TH = F.embedding(row_T, self._words.value)
        if elsewhere_T is not None:
            words_TH = words_TH.masked_fill_(elsewhere_T.unsqueeze(1), 0)
        words_tH = yield from result_of(self._group.reduce_scatter(words_TH))
        if self._positions is None:
            return words_tH
        batch, sequence = tokens_BS.shape
        positions = self._own_positions(self._positions.value, sequence)
        return (words_tH.view(-1, batch, words_tH.shape[1]) + positions.unsqueeze(1)).view_as(words_tH)

    def backward(self, tokens_BS: Tensor, gradient_tH: Tensor, whole_gradient: Pending) -> Passing[None]:
        """Add to the gradients of the tables. ``whole_gradient``: ``gradient_tH`` of all tokens."""
        batch, sequence = tokens_BS.shape
        if self._positions is not None:
            sums = self._own_positions(self._positions.gradient, sequence)
            sums.add_(gradient_tH.view(-1, batch, gradient_tH.shape[1]).sum(1, dtype=torch.float32))
        row_T, elsewhere_T = self._rows(tokens_BS)
        gradient_TH = (yield from result_of(whole_gradient)).float()
        if elsewhere_T is not None:
            gradient_TH = gradient_TH.masked_fill(elsewhere_T.unsqueeze(1), 0)
        self._words.gradient.index_add_(0, row_T, gradient_TH)

    def _rows(self, tokens_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the row of each token in this rank's part of the table, and True for tokens of other ranks' rows; None
        with one rank."""
        tokens_T = sequence_first(tokens_BS)
        if self._group.size == 1:
            return tokens_T, None
        rows = self._words.value.shape[0]
        elsewhere = (tokens_T // rows) != self._group.rank
        # Tokens of other ranks add zeros. They are spread over the rows: on one row, the additions would wait in line.
        return tokens_T % rows, elsewhere

    def _own_positions(self, positions_SH: Tensor, sequence: int) -> Tensor:
        """Return the rows of this rank's part of the sequence."""
        share = sequence // self._group.size
        return positions_SH.narrow(0, self._group.rank * share, share)


class OutputPass:
    """Final norm, logits by the output's table (which may be the words' table), and token losses.

    The gradient of a token's loss does not depend on other micro-batches: it is the token's mask over the number of
    tokens that count. So in training the forward and backward pass are one, and no logits are kept.
    """

    def __init__(self, norm: Norm, table: WholeParameter, group: TensorGroup) -> None:
        self._norm, self._table, self._group = norm, table, group
        self._room: Tensor | None = None

    def refresh(self) -> None:
        self._norm.refresh()

    def losses(self, x_tH: Tensor, labels_T: Tensor) -> Passing[Tensor]:
        """Return the loss of each token [T], FP32."""
        normed, _ = self._norm.forward(x_tH)
        normed_TH = yield from result_of(self._group.gather(normed.tensor))
        tiles = self._softmax_tiles(len(labels_T))
        return torch.cat([self._tile_losses(normed_TH[tile], labels_T[tile])[0] for tile in tiles])

    def losses_and_gradient(self, x_tH: Tensor, labels_T: Tensor, weights_T: Tensor) -> Passing[tuple[Tensor, Tensor]]:
        """Return the loss of each token [T], FP32, and the gradient of ``x_tH`` [t, H] of their sum weighted by
        ``weights_T``; add to the parameters' gradients."""
        normed, state = self._norm.forward(x_tH)
        normed_TH = yield from result_of(self._group.gather(normed.tensor))
        gradient_TH, losses = torch.empty_like(normed_TH), []
        products = self._tiles(len(labels_T), LARGEST_PRODUCT, normed_TH.dtype)
        room = self._room_for(products[0].stop, normed_TH)
        for product in products:
            inputs, labels, weights = normed_TH[product], labels_T[product], weights_T[product]
            logits = room[: len(labels)]
            for tile in self._softmax_tiles(len(labels)):
                tile_losses, softmax = self._tile_losses(inputs[tile], labels[tile], out=logits[tile])
                softmax_gradient(softmax, weights[tile])
                losses.append(tile_losses)
            torch.mm(logits, self._table.value, out=gradient_TH[product])
            if product is products[-1]:
                terms = self._group.reduce_scatter(gradient_TH)
            self._table.add_product(logits, inputs)
        del room, logits, softmax  # a gigabyte that the norm does not need
        normed_gradient_tH = yield from result_of(terms)
        return torch.cat(losses), self._norm.backward(normed_gradient_tH, x_tH, state, None).tensor

    def _room_for(self, rows: int, like_TH: Tensor) -> Tensor:
        """Return memory for logits. A CPU's is kept: the kernel clears each page that a process takes anew."""
        if self._room is not None and len(self._room) == rows:
            return self._room
        room = like_TH.new_empty(rows, self._table.value.shape[0])
        self._room = None if room.is_cuda else room
        return room

    def _tile_losses(self, normed_TH: Tensor, labels_T: Tensor, out: Tensor | None = None) -> tuple[Tensor, Softmax]:
        """Return losses and softmax of a logits tile, whose logits go into ``out``."""
        return softmax_losses(torch.mm(normed_TH, self._table.value.t(), out=out), labels_T, self._group.group)

    def _softmax_tiles(self, tokens: int) -> Sequence[slice]:
        most_bytes = LARGEST_TILE if self._table.value.is_cuda else min(LARGEST_TILE, TILE_ON_CPU)
        return self._tiles(tokens, most_bytes, torch.float32)

    def _tiles(self, tokens: int, most_bytes: int, dtype: torch.dtype) -> Sequence[slice]:
        """Divide ``tokens`` into tiles whose logits of ``dtype`` have ``most_bytes``, or little more."""
        size = rows_of_part(tokens, self._table.value.shape[0] * dtype.itemsize, most_bytes)
        return [slice(first, min(first + size, tokens)) for first in range(0, tokens, size)]
