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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from model.decoder_sizes import Recompute
from model.kernels import NormState
from model.passes.linear.fp8_weight import Fp8Weight
from model.passes.linear.linear_pass import LinearPass
from model.passes.tensor_group import Passing, Pending, TensorGroup, result_of, waited

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

    def forward_sum(self, x_tH: Tensor, terms_tH: Tensor) -> tuple[Tensor, Tensor, NormState]:
        """Return the sum of ``x_tH`` and ``terms_tH``, and its norm as :meth:`forward` does."""
        ...

    def backward(self, gradient_tH: Tensor, x_tH: Tensor, state: NormState, residual_tH: Tensor | None) -> Tensor:
        """Return the gradient of ``x_tH``, plus ``residual_tH``; add to the parameters' gradients."""
        ...


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

    @property
    def linear(self) -> tuple[LinearPass, ...]:
        return self.into_attention, self.out_of_attention, self.into_mlp, self.out_of_mlp


@dataclass(slots=True)
class BlockActivations:
    """Tensors that a block's backward pass starts from. A tensor that is None is computed again.

    Inputs of linear layers are in the form that their weight gradients take (linear/linear_pass.py)."""

    x_tH: Tensor
    """The block's input."""
    heads: Attention | None = None
    """Tensors that attention's backward pass starts from."""
    y_tH: Tensor | None = None
    """The hidden state between attention and MLP."""
    before_activation_TF: Tensor | None = None
    normed_x_TH: Any = None
    """Input of the product into attention: after the first norm, all tokens."""
    attention_out: Any = None
    """Input of the product out of attention, where that is cast; ``heads`` has it, too."""
    normed_y_TH: Any = None
    """Input of the product into the MLP: after the second norm, all tokens."""
    after_activation_TF: Any = None
    """Input of the product out of the MLP."""
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
        for linear in self._parts.linear:
            linear.refresh()

    @property
    def fp8_weights(self) -> list[Fp8Weight]:
        """Weights whose scales are to be found before they are gathered."""
        return [weight for linear in self._parts.linear for weight in linear.fp8_weights]

    def forward(self, x_tH: Tensor, *, keep: bool) -> Passing[tuple[Tensor, BlockActivations | None]]:
        """Return the block's output [t, H], and the activations for its backward pass; None unless ``keep``."""
        self.watch.begin()
        out_tH, activations = yield from self._whole_forward(x_tH, keeps=keep and self._recompute == "none")
        self.watch.end()
        if not keep:
            return out_tH, None
        if self._recompute == "selective":
            activations.state_x = activations.state_y = None
        return out_tH, BlockActivations(x_tH) if self._recompute == "full" else activations

    def _whole_forward(self, x_tH: Tensor, *, keeps: bool) -> Passing[tuple[Tensor, BlockActivations]]:
        """Return the block's output, and all activations; the inputs of linear layers among them only if ``keeps``."""
        activations, out_of_mlp = BlockActivations(x_tH), self._parts.out_of_mlp
        before_activation_TF, y_tH = yield from self._to_activation(activations, self.watch, keeps=keeps)
        x = out_of_mlp.input(self._parts.activation(before_activation_TF), keeps=keeps)
        out_TH, activations.after_activation_TF = out_of_mlp.forward(x, keeps=keeps)
        terms = self._group.reduce_scatter(out_TH)
        del out_TH
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
            # The watch may measure a forward pass that runs beside this.
            yield from self._to_activation(activations, NOBODY, keeps=True)
        x_tH, y_tH, heads = activations.x_tH, activations.y_tH, activations.heads
        before_activation_TF, attention_out = activations.before_activation_TF, activations.attention_out
        assert y_tH is not None and before_activation_TF is not None and heads is not None

        after_activation = activations.after_activation_TF
        if after_activation is None:
            after_activation = parts.out_of_mlp.weight_input(parts.activation(before_activation_TF))
        normed_x, state_x = activations.normed_x_TH, activations.state_x
        normed_y, pending_y, state_y = self._normed(parts.norm_y, y_tH, activations.normed_y_TH, activations.state_y)
        del activations
        gradient_TH = yield from result_of(whole_gradient)
        del whole_gradient
        gradient = parts.out_of_mlp.gradient(gradient_TH, gradient_tH)
        del gradient_TH
        inner_gradient_TF = parts.activation_backward(parts.out_of_mlp.backward(gradient), before_activation_TF)
        del before_activation_TF
        inner_gradient = parts.into_mlp.gradient(inner_gradient_TF, inner_gradient_TF)
        del inner_gradient_TF
        terms = self._group.reduce_scatter(parts.into_mlp.backward(inner_gradient))
        parts.out_of_mlp.add_gradients(gradient, after_activation)
        del after_activation, gradient
        normed_gradient_tH = yield from result_of(terms)
        y_gradient_tH = parts.norm_y.backward(normed_gradient_tH, y_tH, state_y, gradient_tH)
        del normed_gradient_tH, terms, y_tH, gradient_tH

        whole_y_gradient = self._group.gather(y_gradient_tH)
        if pending_y is not None:
            normed_y = parts.into_mlp.weight_input(waited(pending_y))
        parts.into_mlp.add_gradients(inner_gradient, normed_y)
        del inner_gradient, normed_y, pending_y
        normed_x, pending_x, state_x = self._normed(parts.norm_x, x_tH, normed_x, state_x)
        y_gradient_TH = yield from result_of(whole_y_gradient)
        del whole_y_gradient
        gradient = parts.out_of_attention.gradient(y_gradient_TH, y_gradient_tH)
        del y_gradient_TH
        qkv_gradient = heads.backward(parts.out_of_attention.backward(gradient))
        inner_gradient = parts.into_attention.gradient(qkv_gradient, qkv_gradient)
        del qkv_gradient
        terms = self._group.reduce_scatter(parts.into_attention.backward(inner_gradient))
        if attention_out is None:
            attention_out = parts.out_of_attention.weight_input(heads.out())
        parts.out_of_attention.add_gradients(gradient, attention_out)
        del gradient, attention_out, heads
        normed_gradient_tH = yield from result_of(terms)
        x_gradient_tH = parts.norm_x.backward(normed_gradient_tH, x_tH, state_x, y_gradient_tH)
        del normed_gradient_tH, terms, x_tH, y_gradient_tH

        handed_on = hand_on(x_gradient_tH)
        if pending_x is not None:
            normed_x = parts.into_attention.weight_input(waited(pending_x))
        parts.into_attention.add_gradients(inner_gradient, normed_x)
        return x_gradient_tH, handed_on

    def _to_activation(
        self, activations: BlockActivations, watch: ForwardWatch, *, keeps: bool
    ) -> Passing[tuple[Tensor, Tensor]]:
        """Compute from the block's input up to the activation function's input; return the latter, and the hidden state
        between attention and MLP. All tensors are stored in ``activations``, inputs of linear layers if ``keeps``."""
        parts = self._parts
        normed_tH, activations.state_x = parts.norm_x.forward(activations.x_tH)
        normed_TH = yield from _awaited(self._group.gather(normed_tH), watch)
        x = parts.into_attention.input(normed_TH, keeps=keeps)
        del normed_tH, normed_TH
        qkv, activations.normed_x_TH = parts.into_attention.forward(x, keeps=keeps)
        activations.heads = parts.attend(qkv)
        del qkv
        keeps_out = keeps and parts.out_of_attention.casts
        x = parts.out_of_attention.input(activations.heads.out(), keeps=keeps_out)
        out_TH, activations.attention_out = parts.out_of_attention.forward(x, keeps=keeps_out)
        del x
        terms = self._group.reduce_scatter(out_TH)
        del out_TH
        dense_tH = yield from _awaited(terms, watch)
        del terms
        activations.y_tH, normed_tH, activations.state_y = parts.norm_y.forward_sum(activations.x_tH, dense_tH)
        del dense_tH
        normed_TH = yield from _awaited(self._group.gather(normed_tH), watch)
        x = parts.into_mlp.input(normed_TH, keeps=keeps)
        del normed_tH, normed_TH
        activations.before_activation_TF, activations.normed_y_TH = parts.into_mlp.forward(x, keeps=keeps)
        return activations.before_activation_TF, activations.y_tH

    def _normed(
        self, norm: Norm, x_tH: Tensor, normed: Any, state: NormState | None
    ) -> tuple[Any, Pending | None, NormState]:
        """Return the input of the product behind a norm, if it was kept, and else the norm of ``x_tH`` for all tokens,
        computed again."""
        if normed is not None and state is not None:
            return normed, None, state
        normed_tH, state = norm.forward(x_tH)
        return None, self._group.gather(normed_tH), state


def _awaited(pending: Pending, watch: ForwardWatch) -> Passing[Tensor]:
    """Return the result of ``pending``; tell ``watch`` of the pause."""
    watch.mark()
    result = yield from result_of(pending)
    watch.mark()
    return result
