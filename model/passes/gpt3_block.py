"""GPT-3's own parts of a block: LayerNorm, matrix products with bias, attention, GELU.

gpt3.py defines the model for a reader; block_pass.py has the order of computation and messages.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from model.gpt3_config import GPT3Config
from model.kernels import NormState, gelu, gelu_backward, layer_norm_backward, layer_norm_forward
from model.measuring_kernels import gelu_and_largest, gelu_backward_and_largest
from model.passes.attention import AttentionLayout, attend
from model.passes.block_pass import BlockParts
from model.passes.linear.linear_pass import LinearPass
from model.passes.linear.raw_operand import RawOperand, raw_operand_by
from model.passes.tensor_group import TensorGroup
from model.passes.whole_parameter import WholeParameter


class NormPass:
    """LayerNorm, whose stored weight is the gain minus one; in BF16 the sum 1 + weight is rounded to BF16."""

    def __init__(self, parameters: Mapping[str, WholeParameter], name: str) -> None:
        self._weight, self._bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        self._gain = torch.empty_like(self._weight.value)

    def refresh(self) -> None:
        """Compute the gains anew, after the weights have changed."""
        torch.add(self._weight.value, 1, out=self._gain)

    def forward(self, x_tH: Tensor) -> tuple[RawOperand, NormState]:
        normed_tH, state = layer_norm_forward(x_tH, self._gain, self._bias.value)
        return RawOperand(normed_tH), state

    def forward_sum(self, x_tH: Tensor, terms_tH: Tensor) -> tuple[Tensor, RawOperand, NormState]:
        sum_tH = x_tH + terms_tH
        return sum_tH, *self.forward(sum_tH)

    def backward(self, gradient_tH: Tensor, x_tH: Tensor, state: NormState, residual_tH: Tensor | None) -> RawOperand:
        of_input, of_gain, of_bias = layer_norm_backward(gradient_tH, x_tH, state, self._gain, self._bias.value)
        self._weight.add(of_gain)
        self._bias.add(of_bias)
        return RawOperand(of_input if residual_tH is None else of_input.add_(residual_tH))


def gpt3_attention(sizes: GPT3Config, ranks: int, batch: int) -> AttentionLayout:
    heads = sizes.num_attention_heads // ranks
    return AttentionLayout(
        lambda qkv: qkv.view(len(qkv), heads, 3, -1).unbind(2), partial(attend, batch=batch, heads=heads)
    )


def gpt3_block(
    parameters: Mapping[str, WholeParameter],
    group: TensorGroup,
    sizes: GPT3Config,
    batch: int,
    linear: Callable[..., LinearPass],
) -> BlockParts:
    """``parameters``: by their names in ``gpt3.py``'s Block; ``batch``: samples of a micro-batch;
    ``linear``: makes a linear layer (linear/linear_formats.py)."""
    first = group.rank == 0
    out_of_mlp = linear(parameters, "mlp.dense_4h_to_h", adds_bias=first)
    measures = out_of_mlp.measures
    return BlockParts(
        norm_x=NormPass(parameters, "input_layernorm"),
        norm_y=NormPass(parameters, "post_attention_layernorm"),
        into_attention=linear(parameters, "self_attention.query_key_value"),
        out_of_attention=linear(parameters, "self_attention.dense", adds_bias=first),
        attend=gpt3_attention(sizes, group.size, batch).attend,
        attention_backward=lambda heads, gradient: RawOperand(heads.backward(gradient)),
        into_mlp=linear(parameters, "mlp.dense_h_to_4h"),
        out_of_mlp=out_of_mlp,
        activation=partial(raw_operand_by, gelu_and_largest if measures else gelu),
        activation_backward=partial(raw_operand_by, gelu_backward_and_largest if measures else gelu_backward),
    )
