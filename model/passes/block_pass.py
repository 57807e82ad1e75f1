"""A block's forward and backward pass, written out: what is computed when, what is kept, what is sent meanwhile.

The models as a reader wants them are gpt3.py and llama31.py; here is the same with its derivatives, on plain tensors,
whatever a model's own parts are (gpt3_block.py, llama_block.py), so that
  - weight gradients are summed in FP32 by the matrix products themselves (whole_parameter.py),
  - every collective of the backward pass runs beside a matrix product that does not need it,
  - what is kept is chosen by ``recompute``, and nothing is done by hooks or by autograd.

Tensor parallelism with sequence parallelism (Korthikanti et al., arXiv:2205.05198; docs/facts/reference.md d): between
the matrix products each rank has all of the hidden state of its part of the sequence; inside them, all of the sequence
for its own heads or feed-forward columns. Tensors are named by their axes: t tokens of this rank's part of the
sequence, T all tokens (sequence first, samples of the micro-batch next to each other), H hidden, F and N D the
feed-forward columns and heads of this rank.

recompute
    none        keeps everything
    selective   keeps what goes into norms, activations and attention, and what comes out of attention. Norms,
                activations and gathered sequences are made again; no matrix product is
    full        keeps the block's input; makes everything again but the last matrix product
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from model.decoder_sizes import Recompute
from model.kernels import NormState
from model.passes.tensor_group import Passing, Pending, TensorGroup, needed
from model.passes.whole_parameter import WholeParameter

HandOn = Callable[[Tensor], Pending]
"""Takes the gradient of a block's input [t, H] as soon as it is there; what the next block of the backward pass needs
of it is pending then: the gradient of all tokens."""


class ForwardWatch:
    """Is told of the forward pass of a block, for whoever measures it. This one does nothing."""

    def begin(self) -> None:
        """The pass begins."""

    def mark(self) -> None:
        """The pass begins to wait for a collective, or goes on after one."""

    def end(self) -> None:
        """The pass is over."""


NOBODY = ForwardWatch()


class Norm(Protocol):
    """LayerNorm, or what a model has in its place."""

    def refresh(self) -> None:
        """After the weights have changed."""
        ...

    def forward(self, x_tH: Tensor) -> tuple[Tensor, NormState]: ...

    def backward(self, gradient_tH: Tensor, x_tH: Tensor, state: NormState) -> Tensor:
        """Gradient of ``x_tH``; adds to the parameters' gradients."""
        ...


class LinearPass:
    """Matrix products with the same input, whose columns stand side by side; with biases where the model has them."""

    def __init__(self, parameters: Mapping[str, WholeParameter], *names: str, adds_bias: bool = True) -> None:
        """``adds_bias``: of the terms of a sum over ranks only the first has the bias."""
        self._weights = [parameters[f"{name}.weight"] for name in names]
        self._biases = [parameters.get(f"{name}.bias") for name in names]
        self._columns = [weight.value.shape[0] for weight in self._weights]
        self._adds_bias = adds_bias

    def forward(self, x_TH: Tensor) -> Tensor:
        if len(self._weights) == 1:
            return self._product(0, x_TH, None)
        out = torch.empty(x_TH.shape[0], sum(self._columns), dtype=x_TH.dtype, device=x_TH.device)
        for number, part in enumerate(self._parts(out)):
            self._product(number, x_TH, part)
        return out

    def _product(self, number: int, x_TH: Tensor, out: Tensor | None) -> Tensor:
        weight_HF, bias = self._weights[number].value.t(), self._biases[number]
        if bias is None or not self._adds_bias:
            return torch.mm(x_TH, weight_HF, out=out)
        return torch.addmm(bias.value, x_TH, weight_HF, out=out)

    def backward(self, gradient_TF: Tensor) -> Tensor:
        """Gradient of the input."""
        first, *others = zip(self._parts(gradient_TF), self._weights, strict=True)
        of_input = torch.mm(first[0], first[1].value)
        for gradient, weight in others:
            of_input.addmm_(gradient, weight.value)
        return of_input

    def add_gradients(self, gradient_TF: Tensor, x_TH: Tensor, of_bias: Tensor) -> None:
        """Add to the parameters' gradients; those of the biases are the sums over the rows of ``of_bias``."""
        parts = self._parts(gradient_TF), self._parts(of_bias)
        for weight, bias, gradient, bias_terms in zip(self._weights, self._biases, *parts, strict=True):
            weight.add_product(gradient, x_TH)
            if bias is not None:
                bias.add_rows(bias_terms)

    def _parts(self, whole_TF: Tensor) -> Sequence[Tensor]:
        """Return the columns of each product."""
        return [whole_TF] if len(self._columns) == 1 else torch.split(whole_TF, self._columns, dim=1)


class Attention(Protocol):
    """Attention over one micro-batch, as its backward pass needs it."""

    def out(self) -> Tensor:
        """[T, N x D]"""
        ...

    def backward(self, gradient: Tensor) -> Tensor:
        """From the gradient of :meth:`out` to that of what :attr:`BlockParts.attend` was given."""
        ...


@dataclass(frozen=True)
class BlockParts:
    """The parts of a model's own block, on this rank."""

    norm_x: Norm
    """The norm before attention."""
    norm_y: Norm
    """The norm before the MLP."""
    into_attention: LinearPass
    """The product whose columns are this rank's heads."""
    out_of_attention: LinearPass
    attend: Callable[[Tensor], Attention]
    into_mlp: LinearPass
    """Its columns are this rank's part of what goes into the activation."""
    out_of_mlp: LinearPass
    activation: Callable[[Tensor], Tensor]
    activation_backward: Callable[[Tensor, Tensor], Tensor]
    """From the gradient of its output and its input to the gradient of that."""


@dataclass(slots=True)
class KeptBlock:
    """Values that a block's backward pass starts from. A value that is None is computed again."""

    x_tH: Tensor
    """The block's input."""
    heads: Attention | None = None
    """Values that attention's backward pass starts from."""
    y_tH: Tensor | None = None
    """The hidden state between attention and MLP."""
    before_activation_TF: Tensor | None = None
    normed_x_TH: Tensor | None = None
    """After the first norm, all tokens."""
    normed_y_TH: Tensor | None = None
    """After the second norm, all tokens."""
    after_activation_TF: Tensor | None = None
    state_x: NormState | None = None
    state_y: NormState | None = None


class BlockPass:
    """Forward and backward passes of one block."""

    watch: ForwardWatch = NOBODY

    def __init__(self, parts: BlockParts, group: TensorGroup, recompute: Recompute) -> None:
        self._parts, self._group, self._recompute = parts, group, recompute

    def refresh(self) -> None:
        self._parts.norm_x.refresh()
        self._parts.norm_y.refresh()

    def forward(self, x_tH: Tensor, *, keep: bool) -> Passing[tuple[Tensor, KeptBlock | None]]:
        """The block's output [t, H], and what its backward pass needs if ``keep``."""
        self.watch.begin()
        out_tH, kept = yield from self._whole_forward(x_tH)
        self.watch.end()
        if not keep:
            return out_tH, None
        if self._recompute == "selective":
            kept.normed_x_TH = kept.normed_y_TH = kept.after_activation_TF = kept.state_x = kept.state_y = None
        return out_tH, KeptBlock(x_tH) if self._recompute == "full" else kept

    def _whole_forward(self, x_tH: Tensor) -> Passing[tuple[Tensor, KeptBlock]]:
        """The block's output, and everything made on the way."""
        kept = KeptBlock(x_tH)
        before_activation_TF, y_tH = yield from self._to_activation(kept, self.watch)
        kept.after_activation_TF = self._parts.activation(before_activation_TF)
        terms = self._group.reduce_scatter(self._parts.out_of_mlp.forward(kept.after_activation_TF))
        down_tH = yield from _awaited(terms, self.watch)
        return y_tH + down_tH, kept

    def backward(
        self, kept: KeptBlock, gradient_tH: Tensor, whole_gradient: Pending, hand_on: HandOn
    ) -> Passing[tuple[Tensor, Pending]]:
        """Add to the parameters' gradients; return the gradient of the block's input, and the result of ``hand_on``.

        ``gradient_tH``: of the block's output; ``whole_gradient``: the same of all tokens, begun by the next block.
        Each collective begins before a matrix product that does not need it. Each tensor is freed after its last use,
        if the caller holds neither ``kept`` nor the gradients.
        """
        parts = self._parts
        if self._recompute == "full":
            yield from self._to_activation(kept, NOBODY)  # the watch may measure a forward pass that runs beside this
        x_tH, y_tH, before_activation_TF, heads = kept.x_tH, kept.y_tH, kept.before_activation_TF, kept.heads
        assert y_tH is not None and before_activation_TF is not None and heads is not None

        after_activation_TF = kept.after_activation_TF
        if after_activation_TF is None:
            after_activation_TF = parts.activation(before_activation_TF)
        normed_x, state_x = kept.normed_x_TH, kept.state_x
        normed_y, state_y = self._normed(parts.norm_y, y_tH, kept.normed_y_TH, kept.state_y)
        del kept
        gradient_TH = yield from needed(whole_gradient)
        del whole_gradient
        before_activation_gradient_TF = parts.activation_backward(
            parts.out_of_mlp.backward(gradient_TH), before_activation_TF
        )
        del before_activation_TF
        terms = self._group.reduce_scatter(parts.into_mlp.backward(before_activation_gradient_TF))
        parts.out_of_mlp.add_gradients(gradient_TH, after_activation_TF, gradient_tH)
        del after_activation_TF, gradient_TH
        normed_gradient_tH = yield from needed(terms)
        y_gradient_tH = parts.norm_y.backward(normed_gradient_tH, y_tH, state_y).add_(gradient_tH)
        del normed_gradient_tH, terms, y_tH, gradient_tH

        whole_y_gradient = self._group.gather(y_gradient_tH)
        normed_y_TH = yield from needed(normed_y)
        parts.into_mlp.add_gradients(before_activation_gradient_TF, normed_y_TH, before_activation_gradient_TF)
        del before_activation_gradient_TF, normed_y_TH, normed_y
        pending_x, state_x = self._normed(parts.norm_x, x_tH, normed_x, state_x)
        del normed_x
        y_gradient_TH = yield from needed(whole_y_gradient)
        del whole_y_gradient
        qkv_gradient = heads.backward(parts.out_of_attention.backward(y_gradient_TH))
        terms = self._group.reduce_scatter(parts.into_attention.backward(qkv_gradient))
        parts.out_of_attention.add_gradients(y_gradient_TH, heads.out(), y_gradient_tH)
        del y_gradient_TH, heads
        normed_gradient_tH = yield from needed(terms)
        x_gradient_tH = parts.norm_x.backward(normed_gradient_tH, x_tH, state_x).add_(y_gradient_tH)
        del normed_gradient_tH, terms, x_tH, y_gradient_tH

        handed_on = hand_on(x_gradient_tH)
        normed_x_TH = yield from needed(pending_x)
        parts.into_attention.add_gradients(qkv_gradient, normed_x_TH, qkv_gradient)
        return x_gradient_tH, handed_on

    def _to_activation(self, kept: KeptBlock, watch: ForwardWatch) -> Passing[tuple[Tensor, Tensor]]:
        """From the block's input up to what goes into the activation; returns that, and the hidden state beside it.
        Everything made on the way goes into ``kept``."""
        normed_tH, kept.state_x = self._parts.norm_x.forward(kept.x_tH)
        gathered = self._group.gather(normed_tH)
        kept.normed_x_TH = yield from _awaited(gathered, watch)
        kept.heads = self._parts.attend(self._parts.into_attention.forward(kept.normed_x_TH))
        terms = self._group.reduce_scatter(self._parts.out_of_attention.forward(kept.heads.out()))
        dense_tH = yield from _awaited(terms, watch)
        kept.y_tH = kept.x_tH + dense_tH
        normed_tH, kept.state_y = self._parts.norm_y.forward(kept.y_tH)
        gathered = self._group.gather(normed_tH)
        kept.normed_y_TH = yield from _awaited(gathered, watch)
        kept.before_activation_TF = self._parts.into_mlp.forward(kept.normed_y_TH)
        return kept.before_activation_TF, kept.y_tH

    def _normed(
        self, norm: Norm, x_tH: Tensor, whole: Tensor | None, state: NormState | None
    ) -> tuple[Pending, NormState]:
        """Return the norm of ``x_tH`` for all tokens, computed again unless it was kept."""
        if whole is not None and state is not None:
            return Pending(whole), state
        normed_tH, state = norm.forward(x_tH)
        return self._group.gather(normed_tH), state


def _awaited(pending: Pending, watch: ForwardWatch) -> Passing[Tensor]:
    """The result of ``pending``; ``watch`` is told of the pause."""
    watch.mark()
    result = yield from needed(pending)
    watch.mark()
    return result
