"""A block's forward and backward pass, written out: the order of computation, of messages and of freed memory.

gpt3.py and llama31.py define the models for a reader. This file computes the same numbers and their derivatives on
plain tensors, for the parts of any model (gpt3_block.py, llama_block.py), without hooks and without autograd:
  - the matrix products themselves sum weight gradients in FP32 (whole_parameter.py);
  - every collective of the backward pass runs beside a matrix product that does not need its result;
  - ``recompute`` chooses the activations that a block keeps.

Tensor parallelism with sequence parallelism (Korthikanti et al., arXiv:2205.05198; docs/facts/reference.md d): between
the matrix products each rank has the hidden state of its part of the sequence; inside them, all tokens for its own
heads or feed-forward columns. Tensors are named by their axes: t tokens of this rank's part of the sequence, T all
tokens (sequence first, samples of the micro-batch next to each other), H hidden, F and N D the feed-forward columns and
heads of this rank.

recompute
    none        keeps every activation
    selective   keeps the inputs of norms, activation function and attention, and the output of attention. Norms,
                activation function and gathered sequences are computed again; no matrix product is
    full        keeps the block's input; computes everything again but the last matrix product
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from model.decoder_sizes import Recompute
from model.kernels import NormState
from model.passes.tensor_group import Passing, Pending, TensorGroup, result_of
from model.passes.whole_parameter import WholeParameter

HandOn = Callable[[Tensor], Pending]
"""Called with the gradient of a block's input [t, H] as soon as it is computed. Returns the pending gradient of all
tokens, which the next block of the backward pass needs."""


class ForwardWatch:
    """An observer of a block's forward pass. This one does nothing."""

    def begin(self) -> None:
        """The pass begins."""

    def mark(self) -> None:
        """The pass begins to wait for a collective, or goes on after one."""

    def end(self) -> None:
        """The pass is over."""


NOBODY = ForwardWatch()


class Norm(Protocol):
    """LayerNorm or RMSNorm."""

    def refresh(self) -> None:
        """Called after the weights have changed."""
        ...

    def forward(self, x_tH: Tensor) -> tuple[Tensor, NormState]: ...

    def backward(self, gradient_tH: Tensor, x_tH: Tensor, state: NormState) -> Tensor:
        """Return the gradient of ``x_tH``; add to the parameters' gradients."""
        ...


class LinearPass:
    """Matrix products of one input, whose output columns lie side by side; with biases where the model has them."""

    def __init__(self, parameters: Mapping[str, WholeParameter], *names: str, adds_bias: bool = True) -> None:
        """``adds_bias``: False for all ranks but the first where the outputs of the ranks are summed."""
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
        """Return the gradient of the input [T, H]."""
        (gradient, weight), *products = zip(self._parts(gradient_TF), self._weights, strict=True)
        of_input = torch.mm(gradient, weight.value)
        for gradient, weight in products:
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
        """Return the gradient of the input of :attr:`BlockParts.attend`. ``gradient``: of :meth:`out`."""
        ...


@dataclass(frozen=True)
class BlockParts:
    """The parts of a block that are the model's own, on this rank."""

    norm_x: Norm
    """The norm before attention."""
    norm_y: Norm
    """The norm before the MLP."""
    into_attention: LinearPass
    """The product whose columns are this rank's heads."""
    out_of_attention: LinearPass
    attend: Callable[[Tensor], Attention]
    into_mlp: LinearPass
    """The product whose columns are this rank's part of the activation function's input."""
    out_of_mlp: LinearPass
    activation: Callable[[Tensor], Tensor]
    activation_backward: Callable[[Tensor, Tensor], Tensor]
    """Gradient of the activation function's input, from the gradient of its output and its input."""


@dataclass(slots=True)
class BlockActivations:
    """Tensors that a block's backward pass starts from. A tensor that is None is computed again."""

    x_tH: Tensor
    """The block's input."""
    heads: Attention | None = None
    """Tensors that attention's backward pass starts from."""
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

    def forward(self, x_tH: Tensor, *, keep: bool) -> Passing[tuple[Tensor, BlockActivations | None]]:
        """Return the block's output [t, H], and the activations for its backward pass; None unless ``keep``."""
        self.watch.begin()
        out_tH, activations = yield from self._whole_forward(x_tH)
        self.watch.end()
        if not keep:
            return out_tH, None
        if self._recompute == "selective":
            for name in ("normed_x_TH", "normed_y_TH", "after_activation_TF", "state_x", "state_y"):
                setattr(activations, name, None)
        return out_tH, BlockActivations(x_tH) if self._recompute == "full" else activations

    def _whole_forward(self, x_tH: Tensor) -> Passing[tuple[Tensor, BlockActivations]]:
        """Return the block's output, and all activations."""
        activations = BlockActivations(x_tH)
        before_activation_TF, y_tH = yield from self._to_activation(activations, self.watch)
        activations.after_activation_TF = self._parts.activation(before_activation_TF)
        terms = self._group.reduce_scatter(self._parts.out_of_mlp.forward(activations.after_activation_TF))
        down_tH = yield from _awaited(terms, self.watch)
        return y_tH + down_tH, activations

    def backward(
        self, activations: BlockActivations, gradient_tH: Tensor, whole_gradient: Pending, hand_on: HandOn
    ) -> Passing[tuple[Tensor, Pending]]:
        """Add to the parameters' gradients; return the gradient of the block's input, and the result of ``hand_on``.

        ``gradient_tH``: of the block's output; ``whole_gradient``: the same of all tokens, begun by the next block.
        Each collective begins before a matrix product that does not need it. Each tensor is freed after its last use,
        if the caller holds neither ``kept`` nor the gradients.
        """
        parts = self._parts
        if self._recompute == "full":
            yield from self._to_activation(
                activations, NOBODY
            )  # the watch may measure a forward pass that runs beside this
        x_tH, y_tH, heads = activations.x_tH, activations.y_tH, activations.heads
        before_activation_TF = activations.before_activation_TF
        assert y_tH is not None and before_activation_TF is not None and heads is not None

        after_activation_TF = activations.after_activation_TF
        if after_activation_TF is None:
            after_activation_TF = parts.activation(before_activation_TF)
        normed_x, state_x = activations.normed_x_TH, activations.state_x
        normed_y, state_y = self._normed(parts.norm_y, y_tH, activations.normed_y_TH, activations.state_y)
        del activations
        gradient_TH = yield from result_of(whole_gradient)
        del whole_gradient
        before_activation_gradient_TF = parts.activation_backward(
            parts.out_of_mlp.backward(gradient_TH), before_activation_TF
        )
        del before_activation_TF
        terms = self._group.reduce_scatter(parts.into_mlp.backward(before_activation_gradient_TF))
        parts.out_of_mlp.add_gradients(gradient_TH, after_activation_TF, gradient_tH)
        del after_activation_TF, gradient_TH
        normed_gradient_tH = yield from result_of(terms)
        y_gradient_tH = parts.norm_y.backward(normed_gradient_tH, y_tH, state_y).add_(gradient_tH)
        del normed_gradient_tH, terms, y_tH, gradient_tH

        whole_y_gradient = self._group.gather(y_gradient_tH)
        normed_y_TH = yield from result_of(normed_y)
        parts.into_mlp.add_gradients(before_activation_gradient_TF, normed_y_TH, before_activation_gradient_TF)
        del before_activation_gradient_TF, normed_y_TH, normed_y
        pending_x, state_x = self._normed(parts.norm_x, x_tH, normed_x, state_x)
        del normed_x
        y_gradient_TH = yield from result_of(whole_y_gradient)
        del whole_y_gradient
        qkv_gradient = heads.backward(parts.out_of_attention.backward(y_gradient_TH))
        terms = self._group.reduce_scatter(parts.into_attention.backward(qkv_gradient))
        parts.out_of_attention.add_gradients(y_gradient_TH, heads.out(), y_gradient_tH)
        del y_gradient_TH, heads
        normed_gradient_tH = yield from result_of(terms)
        x_gradient_tH = parts.norm_x.backward(normed_gradient_tH, x_tH, state_x).add_(y_gradient_tH)
        del normed_gradient_tH, terms, x_tH, y_gradient_tH

        handed_on = hand_on(x_gradient_tH)
        normed_x_TH = yield from result_of(pending_x)
        parts.into_attention.add_gradients(qkv_gradient, normed_x_TH, qkv_gradient)
        return x_gradient_tH, handed_on

    def _to_activation(self, activations: BlockActivations, watch: ForwardWatch) -> Passing[tuple[Tensor, Tensor]]:
        """Compute from the block's input up to the activation function's input; return the latter, and the hidden state
        between attention and MLP. All tensors are stored in ``activations``."""
        normed_tH, activations.state_x = self._parts.norm_x.forward(activations.x_tH)
        gathered = self._group.gather(normed_tH)
        activations.normed_x_TH = yield from _awaited(gathered, watch)
        activations.heads = self._parts.attend(self._parts.into_attention.forward(activations.normed_x_TH))
        terms = self._group.reduce_scatter(self._parts.out_of_attention.forward(activations.heads.out()))
        dense_tH = yield from _awaited(terms, watch)
        activations.y_tH = activations.x_tH + dense_tH
        normed_tH, activations.state_y = self._parts.norm_y.forward(activations.y_tH)
        gathered = self._group.gather(normed_tH)
        activations.normed_y_TH = yield from _awaited(gathered, watch)
        activations.before_activation_TF = self._parts.into_mlp.forward(activations.normed_y_TH)
        return activations.before_activation_TF, activations.y_tH

    def _normed(
        self, norm: Norm, x_tH: Tensor, normed_TH: Tensor | None, state: NormState | None
    ) -> tuple[Pending, NormState]:
        """Return the norm of ``x_tH`` for all tokens; compute it again if ``normed_TH`` is None."""
        if normed_TH is not None and state is not None:
            return Pending(normed_TH), state
        normed_tH, state = norm.forward(x_tH)
        return self._group.gather(normed_tH), state


def _awaited(pending: Pending, watch: ForwardWatch) -> Passing[Tensor]:
    """Return the result of ``pending``; tell ``watch`` of the pause."""
    watch.mark()
    result = yield from result_of(pending)
    watch.mark()
    return result
