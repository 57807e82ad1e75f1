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
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from model.decoder_sizes import Recompute
from model.kernels import NormState
from model.passes.linear.fp8_weight import Fp8Weight
from model.passes.linear.linear_pass import LinearPass
from model.passes.linear.raw_operand import OperandGather, RawOperand
from model.passes.tensor_group import Passing, Pending, TensorGroup, result_of

HandOn = Callable[[RawOperand], OperandGather]
"""Called with the gradient of a block's input [t, H] as soon as it is computed. Begins to gather the gradient of all
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

    def forward(self, x_tH: Tensor) -> tuple[RawOperand, NormState]: ...

    def forward_sum(self, x_tH: Tensor, terms_tH: Tensor) -> tuple[Tensor, RawOperand, NormState]:
        """Return the sum of ``x_tH`` and ``terms_tH``, and its norm as :meth:`forward` does."""
        ...

    def backward(self, gradient_tH: Tensor, x_tH: Tensor, state: NormState, residual_tH: Tensor | None) -> RawOperand:
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
    attention_backward: Callable[[Any, Tensor], RawOperand]
    """Gradient of the input of ``attend``, from its result and the gradient of its output."""
    into_mlp: LinearPass
    """The product whose columns are this rank's part of the activation function's input."""
    out_of_mlp: LinearPass
    activation: Callable[[Tensor], RawOperand]
    activation_backward: Callable[[Tensor, Tensor], RawOperand]
    """Gradient of the activation function's input, from the gradient of its output and its input."""

    @property
    def linear(self) -> tuple[LinearPass, ...]:
        return self.into_attention, self.out_of_attention, self.into_mlp, self.out_of_mlp


@dataclass(slots=True)
class BlockActivations:
    """Tensors that a block's backward pass starts from. A tensor that is None is computed again.

    Inputs of linear layers are in the form that their weight gradients take; of one that is computed again, its scale
    may be here (linear/linear_pass.py)."""

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

    def gather_gradient(self, gradient_tH: RawOperand) -> OperandGather:
        """Begin to gather the gradient of the block's output, for :meth:`backward`."""
        return self._parts.out_of_mlp.gather_gradient(gradient_tH, self._group)

    def forward(self, x_tH: Tensor, *, keep: bool) -> Passing[tuple[Tensor, BlockActivations | None]]:
        """Return the block's output [t, H], and the activations for its backward pass; None unless ``keep``."""
        self.watch.begin()
        out_tH, activations = yield from self._whole_forward(x_tH, keeps=keep and self._recompute == "none")
        self.watch.end()
        if not keep:
            return out_tH, None
        if self._recompute == "selective":
            activations.state_x = activations.state_y = None  # so the norms are computed again
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
        self, activations: BlockActivations, gradient_tH: Tensor, gradient_gather: OperandGather, hand_on: HandOn
    ) -> Passing[tuple[Tensor, OperandGather]]:
        """Add to the parameters' gradients; return the gradient of the block's input, and the result of ``hand_on``.

        ``gradient_tH``: of the block's output; ``gradient_gather``: by :meth:`gather_gradient`.
        Each collective begins before a matrix product that does not need it. Each tensor is freed after its last use,
        if the caller holds neither ``activations`` nor the gradients. ``of_y``: the gradient of y, and so on.
        """
        parts = self._parts
        if self._recompute == "full":
            # The watch may measure a forward pass that runs beside this.
            yield from self._to_activation(activations, NOBODY, keeps=True)
        x_tH, y_tH, heads = activations.x_tH, activations.y_tH, activations.heads
        before_activation_TF, attention_out = activations.before_activation_TF, activations.attention_out
        assert y_tH is not None and before_activation_TF is not None and heads is not None
        # values that were not kept, while the gradient of the block's output travels
        after_activation = parts.out_of_mlp.weight_input(
            partial(parts.activation, before_activation_TF), activations.after_activation_TF
        )
        normed_x, state_x = activations.normed_x_TH, activations.state_x
        normed_y, pending_y, state_y = self._normed(
            parts.norm_y, parts.into_mlp, y_tH, activations.normed_y_TH, activations.state_y
        )
        del activations
        # the MLP, back to y
        whole_gradient = yield from gradient_gather.result()
        of_output = parts.out_of_mlp.gradient(whole_gradient, gradient_tH)
        del gradient_gather, whole_gradient
        of_inner = parts.activation_backward(parts.out_of_mlp.backward(of_output), before_activation_TF)
        del before_activation_TF
        of_into_mlp = parts.into_mlp.gradient(of_inner, of_inner.tensor)
        del of_inner
        terms = self._group.reduce_scatter(parts.into_mlp.backward(of_into_mlp))
        parts.out_of_mlp.add_gradients(of_output, after_activation)
        del after_activation, of_output
        of_normed_tH = yield from result_of(terms)
        of_y = parts.norm_y.backward(of_normed_tH, y_tH, state_y, gradient_tH)
        del of_normed_tH, terms, y_tH, gradient_tH
        gradient_gather = parts.out_of_attention.gather_gradient(of_y, self._group)
        if pending_y is not None:
            normed_y = _made_again(parts.into_mlp, pending_y)
        gradient_gather.send()
        parts.into_mlp.add_gradients(of_into_mlp, normed_y)
        del of_into_mlp, normed_y, pending_y
        # attention, back to the block's input x
        normed_x, pending_x, state_x = self._normed(parts.norm_x, parts.into_attention, x_tH, normed_x, state_x)
        whole_gradient = yield from gradient_gather.result()
        of_y_tH = of_y.tensor
        of_output = parts.out_of_attention.gradient(whole_gradient, of_y_tH)
        del gradient_gather, whole_gradient, of_y
        of_qkv = parts.attention_backward(heads, parts.out_of_attention.backward(of_output))
        of_into_attention = parts.into_attention.gradient(of_qkv, of_qkv.tensor)
        del of_qkv
        terms = self._group.reduce_scatter(parts.into_attention.backward(of_into_attention))
        attention_out = parts.out_of_attention.weight_input(partial(_output_of, heads), attention_out)
        parts.out_of_attention.add_gradients(of_output, attention_out)
        del of_output, attention_out, heads
        of_normed_tH = yield from result_of(terms)
        of_x = parts.norm_x.backward(of_normed_tH, x_tH, state_x, of_y_tH)
        del of_normed_tH, terms, x_tH, of_y_tH
        gradient_gather = hand_on(of_x)
        if pending_x is not None:
            normed_x = _made_again(parts.into_attention, pending_x)
        gradient_gather.send()
        parts.into_attention.add_gradients(of_into_attention, normed_x)
        return of_x.tensor, gradient_gather

    def _to_activation(
        self, activations: BlockActivations, watch: ForwardWatch, *, keeps: bool
    ) -> Passing[tuple[Tensor, Tensor]]:
        """Compute from the block's input up to the activation function's input; return the latter, and the hidden state
        between attention and MLP. All tensors are stored in ``activations``, inputs of linear layers if ``keeps``."""
        parts = self._parts
        normed, activations.state_x = parts.norm_x.forward(activations.x_tH)
        whole = yield from self._gathered(parts.into_attention, normed, watch)
        x = parts.into_attention.input(whole, keeps=keeps)
        del normed, whole
        qkv, activations.normed_x_TH = parts.into_attention.forward(x, keeps=keeps)
        activations.heads = parts.attend(qkv)
        del qkv
        keeps_out = keeps and parts.out_of_attention.casts
        x = parts.out_of_attention.input(_output_of(activations.heads), keeps=keeps_out)
        out_TH, activations.attention_out = parts.out_of_attention.forward(x, keeps=keeps_out)
        del x
        terms = self._group.reduce_scatter(out_TH)
        del out_TH
        dense_tH = yield from _awaited(terms, watch)
        del terms
        activations.y_tH, normed, activations.state_y = parts.norm_y.forward_sum(activations.x_tH, dense_tH)
        del dense_tH
        whole = yield from self._gathered(parts.into_mlp, normed, watch)
        x = parts.into_mlp.input(whole, keeps=keeps)
        del normed, whole
        activations.before_activation_TF, activations.normed_y_TH = parts.into_mlp.forward(x, keeps=keeps)
        return activations.before_activation_TF, activations.y_tH

    def _gathered(self, linear: LinearPass, x: RawOperand, watch: ForwardWatch) -> Passing[RawOperand]:
        """Return the input ``x`` of ``linear`` of all tokens; tell ``watch`` of the pause."""
        watch.mark()
        whole = yield from linear.gather_input(x, self._group).result()
        watch.mark()
        return whole

    def _normed(
        self, norm: Norm, linear: LinearPass, x_tH: Tensor, kept: Any, state: NormState | None
    ) -> tuple[Any, OperandGather | None, NormState]:
        """Return the input of the product behind a norm, if it was kept, and else the norm of ``x_tH`` for all tokens,
        computed again."""
        if state is not None:
            return kept, None, state
        normed, state = norm.forward(x_tH)
        gather = linear.gather_input(normed._replace(scale=kept), self._group)
        gather.send()
        return None, gather, state


def _output_of(heads: Attention) -> RawOperand:
    return RawOperand(heads.out())


def _made_again(linear: LinearPass, gather: OperandGather) -> Any:
    """Return the input of ``linear``, whose gather began several products ago, for its weight gradient."""
    return linear.weight_input(gather.waited, None)


def _awaited(pending: Pending, watch: ForwardWatch) -> Passing[Tensor]:
    """Return the result of ``pending``; tell ``watch`` of the pause."""
    watch.mark()
    result = yield from result_of(pending)
    watch.mark()
    return result
