"""A block's forward and backward pass, written out: what is computed when, what is kept, what is sent meanwhile.

The model as a reader wants it is gpt3.py; here is the same with its derivatives, on plain tensors, so that
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
    selective   keeps what goes into LayerNorms, GELU and attention, and what comes out of attention. LayerNorms, GELU
                and gathered sequences are made again; no matrix product is
    full        keeps the block's input; makes everything again but the last matrix product
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from model.gpt3_config import Recompute
from model.kernels import NormState, gelu, gelu_backward, layer_norm_backward, layer_norm_forward
from model.passes.attention import Heads, attend
from model.passes.tensor_group import ForwardWatch, Passing, Pending, TensorGroup, needed
from model.passes.whole_parameter import WholeParameter

HandOn = Callable[[Tensor], Pending]
"""Takes the gradient of a block's input [t, H] as soon as it is there; what the next block of the backward pass needs
of it is pending then: the gradient of all tokens."""
NOBODY = ForwardWatch()


class NormPass:
    """LayerNorm, whose stored weight is the gain minus one; in BF16 the sum 1 + weight is rounded to BF16."""

    def __init__(self, parameters: Mapping[str, WholeParameter], name: str) -> None:
        self._weight, self._bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        self._gain = torch.empty_like(self._weight.value)

    def refresh(self) -> None:
        """After the weights have changed."""
        torch.add(self._weight.value, 1, out=self._gain)

    def forward(self, x_tH: Tensor) -> tuple[Tensor, NormState]:
        return layer_norm_forward(x_tH, self._gain, self._bias.value)

    def backward(self, gradient_tH: Tensor, x_tH: Tensor, state: NormState) -> Tensor:
        """Gradient of ``x_tH``."""
        of_input, of_gain, of_bias = layer_norm_backward(gradient_tH, x_tH, state, self._gain, self._bias.value)
        self._weight.add(of_gain)
        self._bias.add(of_bias)
        return of_input


class LinearPass:
    """A matrix product with bias. ``bias_once``: terms of a sum over ranks, of which only the first has the bias."""

    def __init__(self, parameters: Mapping[str, WholeParameter], name: str, *, adds_bias: bool = True) -> None:
        self.weight, self.bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        self._adds_bias = adds_bias

    def forward(self, x_TH: Tensor) -> Tensor:
        weight_HF = self.weight.value.t()
        return torch.addmm(self.bias.value, x_TH, weight_HF) if self._adds_bias else torch.mm(x_TH, weight_HF)

    def backward(self, gradient_TF: Tensor) -> Tensor:
        """Gradient of the input."""
        return torch.mm(gradient_TF, self.weight.value)


@dataclass(slots=True)
class KeptBlock:
    """What a block's backward pass starts from; None is made again."""

    x_tH: Tensor
    """The block's input."""
    heads: Heads | None = None
    """What attention's backward pass starts from."""
    y_tH: Tensor | None = None
    """The hidden state between attention and MLP."""
    before_gelu_TF: Tensor | None = None
    normed_x_TH: Tensor | None = None
    """After the first LayerNorm, all tokens."""
    normed_y_TH: Tensor | None = None
    """After the second LayerNorm, all tokens."""
    after_gelu_TF: Tensor | None = None
    state_x: NormState | None = None
    state_y: NormState | None = None


class BlockPass:
    """Forward and backward passes of one block. ``parameters``: by their names in ``gpt3.py``'s Block."""

    watch: ForwardWatch = NOBODY

    def __init__(
        self, parameters: Mapping[str, WholeParameter], group: TensorGroup, heads: int, batch: int, recompute: Recompute
    ) -> None:
        """``heads``: of this rank; ``batch``: samples of a micro-batch."""
        self._group, self._heads, self._batch, self._recompute = group, heads, batch, recompute
        first = group.rank == 0
        self._norm_x = NormPass(parameters, "input_layernorm")
        self._norm_y = NormPass(parameters, "post_attention_layernorm")
        self._qkv = LinearPass(parameters, "self_attention.query_key_value")
        self._dense = LinearPass(parameters, "self_attention.dense", adds_bias=first)
        self._up = LinearPass(parameters, "mlp.dense_h_to_4h")
        self._down = LinearPass(parameters, "mlp.dense_4h_to_h", adds_bias=first)

    def refresh(self) -> None:
        self._norm_x.refresh()
        self._norm_y.refresh()

    def forward(self, x_tH: Tensor, *, keep: bool) -> Passing[tuple[Tensor, KeptBlock | None]]:
        """The block's output [t, H], and what its backward pass needs if ``keep``."""
        self.watch.begin()
        out_tH, kept = yield from self._whole_forward(x_tH)
        self.watch.end()
        if not keep:
            return out_tH, None
        if self._recompute == "selective":
            kept.normed_x_TH = kept.normed_y_TH = kept.after_gelu_TF = kept.state_x = kept.state_y = None
        return out_tH, KeptBlock(x_tH) if self._recompute == "full" else kept

    def _whole_forward(self, x_tH: Tensor) -> Passing[tuple[Tensor, KeptBlock]]:
        """The block's output, and everything made on the way."""
        kept = KeptBlock(x_tH)
        before_gelu_TF, y_tH = yield from self._to_gelu(kept, self.watch)
        kept.after_gelu_TF = gelu(before_gelu_TF)
        down_tH = yield from _awaited(self._group.reduce_scatter(self._down.forward(kept.after_gelu_TF)), self.watch)
        return y_tH + down_tH, kept

    def backward(
        self, kept: KeptBlock, gradient_tH: Tensor, whole_gradient: Pending, hand_on: HandOn
    ) -> Passing[tuple[Tensor, Pending]]:
        """Add to the parameters' gradients; returns the gradient of the block's input, and what ``hand_on`` returned.

        ``gradient_tH``: of the block's output; ``whole_gradient``: the same of all tokens, begun by the block behind.
        Each collective is begun before a matrix product that does not need it.
        """
        if self._recompute == "full":
            yield from self._to_gelu(kept, NOBODY)  # a forward pass that takes turns with this one may be watched
        x_tH, y_tH, before_gelu_TF, heads = kept.x_tH, kept.y_tH, kept.before_gelu_TF, kept.heads
        assert y_tH is not None and before_gelu_TF is not None and heads is not None

        after_gelu_TF = gelu(before_gelu_TF) if kept.after_gelu_TF is None else kept.after_gelu_TF
        normed_y, state_y = self._normed(self._norm_y, y_tH, kept.normed_y_TH, kept.state_y)
        gradient_TH = yield from needed(whole_gradient)
        before_gelu_gradient_TF = gelu_backward(self._down.backward(gradient_TH), before_gelu_TF)
        terms = self._group.reduce_scatter(self._up.backward(before_gelu_gradient_TF))
        self._down.weight.add_product(gradient_TH, after_gelu_TF)
        self._down.bias.add_rows(gradient_tH)
        del after_gelu_TF, gradient_TH
        normed_gradient_tH = yield from needed(terms)
        y_gradient_tH = self._norm_y.backward(normed_gradient_tH, y_tH, state_y).add_(gradient_tH)

        whole_y_gradient = self._group.gather(y_gradient_tH)
        normed_y_TH = yield from needed(normed_y)
        self._up.weight.add_product(before_gelu_gradient_TF, normed_y_TH)
        self._up.bias.add_rows(before_gelu_gradient_TF)
        del before_gelu_gradient_TF, normed_y_TH, normed_y
        normed_x, state_x = self._normed(self._norm_x, x_tH, kept.normed_x_TH, kept.state_x)
        y_gradient_TH = yield from needed(whole_y_gradient)
        qkv_gradient = heads.backward(self._dense.backward(y_gradient_TH))
        terms = self._group.reduce_scatter(self._qkv.backward(qkv_gradient))
        self._dense.weight.add_product(y_gradient_TH, heads.out())
        self._dense.bias.add_rows(y_gradient_tH)
        del y_gradient_TH
        normed_gradient_tH = yield from needed(terms)
        x_gradient_tH = self._norm_x.backward(normed_gradient_tH, x_tH, state_x).add_(y_gradient_tH)

        handed_on = hand_on(x_gradient_tH)
        normed_x_TH = yield from needed(normed_x)
        self._qkv.weight.add_product(qkv_gradient, normed_x_TH)
        self._qkv.bias.add_rows(qkv_gradient)
        return x_gradient_tH, handed_on

    def _to_gelu(self, kept: KeptBlock, watch: ForwardWatch) -> Passing[tuple[Tensor, Tensor]]:
        """From the block's input up to what goes into GELU; returns that, and the hidden state beside it. Everything
        made on the way goes into ``kept``."""
        normed_tH, kept.state_x = self._norm_x.forward(kept.x_tH)
        gathered = self._group.gather(normed_tH)
        kept.normed_x_TH = yield from _awaited(gathered, watch)
        kept.heads = attend(self._qkv.forward(kept.normed_x_TH), self._batch, self._heads)
        terms = self._group.reduce_scatter(self._dense.forward(kept.heads.out()))
        dense_tH = yield from _awaited(terms, watch)
        kept.y_tH = kept.x_tH + dense_tH
        normed_tH, kept.state_y = self._norm_y.forward(kept.y_tH)
        gathered = self._group.gather(normed_tH)
        kept.normed_y_TH = yield from _awaited(gathered, watch)
        kept.before_gelu_TF = self._up.forward(kept.normed_y_TH)
        return kept.before_gelu_TF, kept.y_tH

    def _normed(
        self, norm: NormPass, x_tH: Tensor, whole: Tensor | None, state: NormState | None
    ) -> tuple[Pending, NormState]:
        """What a LayerNorm made of ``x_tH``, of all tokens, made again unless it was kept."""
        if whole is not None and state is not None:
            return Pending(whole), state
        normed_tH, state = norm.forward(x_tH)
        return self._group.gather(normed_tH), state


def _awaited(pending: Pending, watch: ForwardWatch) -> Passing[Tensor]:
    """The result of ``pending``; ``watch`` is told of the pause."""
    watch.pause()
    result = yield from needed(pending)
    watch.resume()
    return result
