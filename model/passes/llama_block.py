"""Llama 3.1's own parts of a block: RMSNorm, joined matrix products, attention with rotary embedding and shared keys,
SwiGLU.

llama31.py defines the model for a reader; block_pass.py has the order of computation and messages. Tensors
are named by their axes: S sequence, B batch, T all tokens (sequence first), N heads of queries and K heads of keys and
values of this rank, D head dimension.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from model.kernels import (
    NormState,
    add_and_rms_norm,
    rms_norm_backward,
    rms_norm_backward_and_add,
    rms_norm_forward,
    swiglu,
    swiglu_backward,
)
from model.llama31_config import Llama31Config
from model.measuring_kernels import (
    add_and_rms_norm_and_largest,
    rms_norm_and_largest,
    rms_norm_backward_and_add_and_largest,
    rotated_back_and_largest,
    swiglu_and_largest,
    swiglu_backward_and_largest,
)
from model.passes.attention import Attended, AttentionLayout, Kernel, as_rows, kernel_for
from model.passes.block_pass import BlockParts
from model.passes.linear.linear_pass import LinearPass
from model.passes.linear.raw_operand import RawOperand, raw_operand_by
from model.passes.tensor_group import TensorGroup
from model.passes.whole_parameter import WholeParameter
from model.rotary_kernel import RotaryTables, Rotation, with_rotated_heads


class RmsNormPass:
    """RMSNorm, whose stored weight is the gain."""

    def __init__(self, parameters: Mapping[str, WholeParameter], name: str, *, measures: bool = False) -> None:
        """``measures``: its results are to have their largest values."""
        self._gain, self._measures = parameters[f"{name}.weight"], measures

    def refresh(self) -> None:
        """Do nothing: no other tensor follows from the weights."""

    def forward(self, x_tH: Tensor) -> tuple[RawOperand, NormState]:
        if self._measures:
            normed_tH, reciprocal, largest = rms_norm_and_largest(x_tH, self._gain.value)
            return RawOperand(normed_tH, largest), (reciprocal,)
        normed_tH, state = rms_norm_forward(x_tH, self._gain.value)
        return RawOperand(normed_tH), state

    def forward_sum(self, x_tH: Tensor, terms_tH: Tensor) -> tuple[Tensor, RawOperand, NormState]:
        largest = None
        if self._measures:
            sum_tH, normed_tH, reciprocal, largest = add_and_rms_norm_and_largest(x_tH, terms_tH, self._gain.value)
        else:
            sum_tH, normed_tH, reciprocal = add_and_rms_norm(x_tH, terms_tH, self._gain.value)
        return sum_tH, RawOperand(normed_tH, largest), (reciprocal,)

    def backward(self, gradient_tH: Tensor, x_tH: Tensor, state: NormState, residual_tH: Tensor | None) -> RawOperand:
        (reciprocal,), gain, largest = state, self._gain.value, None
        if residual_tH is None:
            of_input, of_gain = rms_norm_backward(gradient_tH, x_tH, state, gain)
        elif self._measures:
            of_input, of_gain, largest = rms_norm_backward_and_add_and_largest(
                gradient_tH, x_tH, reciprocal, gain, residual_tH
            )
        else:
            of_input, of_gain = rms_norm_backward_and_add(gradient_tH, x_tH, reciprocal, gain, residual_tH)
        self._gain.add(of_gain)
        return RawOperand(of_input, largest)


@dataclass(frozen=True)
class GroupedHeads:
    """Attention over one micro-batch, and the tensors for its backward pass. Keys and values are stored once for all
    heads that share them."""

    qkv_SBnD: Tensor
    """Rotated queries and keys, and values, side by side."""
    heads: int
    """Of the queries."""
    attended: Attended
    kernel: Kernel
    rotation: Rotation

    def out(self) -> Tensor:
        """[S x B, N x D]"""
        return as_rows(self.attended.out_BNSD)

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of queries, keys and values side by side, [S x B, (N + 2 K) x D]. ``gradient``: of
        :meth:`out`."""
        q_SBND, k_SBKD, v_SBKD = self._rotated_gradients(gradient)
        return _as_matrix(_rotated(q_SBND, k_SBKD, v_SBKD, self.rotation, backwards=True))

    def backward_and_largest(self, gradient: Tensor) -> RawOperand:
        """As :meth:`backward`, with the largest values."""
        qkv_SBnD, largest = rotated_back_and_largest(*self._rotated_gradients(gradient), *self.rotation)
        return RawOperand(_as_matrix(qkv_SBnD), largest)

    def _rotated_gradients(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of rotated queries and keys, and of values."""
        sequence, batch, _, size = self.qkv_SBnD.shape
        gradient_BNSD = gradient.view(sequence, batch, self.heads, size).permute(1, 2, 0, 3)
        gradients = self.kernel.backward(gradient_BNSD, *_heads_first(self.qkv_SBnD, self.heads), self.attended)
        q_SBND, k_SBKD, v_SBKD = (of_heads.permute(2, 0, 1, 3) for of_heads in gradients)
        return q_SBND, k_SBKD, v_SBKD


def _as_matrix(qkv_SBnD: Tensor) -> Tensor:
    """[S x B, n x D]"""
    return qkv_SBnD.flatten(2).flatten(0, 1)


def attend_grouped(
    qkv: Tensor, *, batch: int, heads: int, shared_heads: int, tables: RotaryTables, kernel: Kernel | None = None
) -> GroupedHeads:
    """Causal attention over whole windows, by ``kernel`` or the chosen one. ``qkv``: [S x batch, (heads + 2 shared
    heads) x D]."""
    sequence = qkv.shape[0] // batch
    qkv_SBnD = qkv.view(sequence, batch, heads + 2 * shared_heads, -1)
    rotation = tables.rotation(sequence, qkv.device)
    q_SBND, k_SBKD, v_SBKD = torch.split(qkv_SBnD, [heads, shared_heads, shared_heads], dim=2)
    qkv_SBnD = _rotated(q_SBND, k_SBKD, v_SBKD, rotation, backwards=False)
    q_BNSD, k_BKSD, v_BKSD = _heads_first(qkv_SBnD, heads)
    kernel = kernel or kernel_for(q_BNSD, k_BKSD)
    return GroupedHeads(qkv_SBnD, heads, kernel.forward(q_BNSD, k_BKSD, v_BKSD), kernel, rotation)


def _rotated(q_SBND: Tensor, k_SBKD: Tensor, v_SBKD: Tensor, rotation: Rotation, *, backwards: bool) -> Tensor:
    return with_rotated_heads(q_SBND, k_SBKD, v_SBKD, rotation.cosine_S111d, rotation.sine_S112d, backwards)


def _heads_first(qkv_SBnD: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return views of queries, keys and values: [B, N, S, D], and twice [B, K, S, D]."""
    shared = (qkv_SBnD.shape[2] - heads) // 2
    q_BNSD, k_BKSD, v_BKSD = torch.split(qkv_SBnD.permute(1, 2, 0, 3), [heads, shared, shared], dim=1)
    return q_BNSD, k_BKSD, v_BKSD


_tables_of_group: WeakKeyDictionary[TensorGroup, RotaryTables] = WeakKeyDictionary()
"""The tables that all blocks of a group's ranks share."""


def llama31_attention(
    sizes: Llama31Config, ranks: int, batch: int, tables: RotaryTables | None = None
) -> AttentionLayout:
    heads, shared = sizes.num_attention_heads // ranks, sizes.num_key_value_heads // ranks
    columns = [count * sizes.head_size for count in (heads, shared, shared)]
    tables = tables or RotaryTables(sizes.head_size)
    return AttentionLayout(
        lambda qkv: torch.split(qkv, columns, dim=1),
        partial(attend_grouped, batch=batch, heads=heads, shared_heads=shared, tables=tables),
    )


def _unmeasured_backward(heads: GroupedHeads, gradient: Tensor) -> RawOperand:
    return RawOperand(heads.backward(gradient))


def llama31_block(
    parameters: Mapping[str, WholeParameter],
    group: TensorGroup,
    sizes: Llama31Config,
    batch: int,
    linear: Callable[..., LinearPass],
) -> BlockParts:
    """``parameters``: by their names in ``llama31.py``'s block; ``batch``: samples of a micro-batch;
    ``linear``: makes a linear layer (linear/linear_formats.py)."""
    tables = _tables_of_group.setdefault(group, RotaryTables(sizes.head_size))
    out_of_mlp = linear(parameters, "mlp.down_proj")
    measures = out_of_mlp.measures
    return BlockParts(
        norm_x=RmsNormPass(parameters, "input_layernorm", measures=measures),
        norm_y=RmsNormPass(parameters, "post_attention_layernorm", measures=measures),
        into_attention=linear(parameters, *(f"self_attn.{name}_proj" for name in "qkv")),
        out_of_attention=linear(parameters, "self_attn.o_proj"),
        attend=llama31_attention(sizes, group.size, batch, tables).attend,
        attention_backward=GroupedHeads.backward_and_largest if measures else _unmeasured_backward,
        into_mlp=linear(parameters, "mlp.gate_proj", "mlp.up_proj"),
        out_of_mlp=out_of_mlp,
        activation=partial(raw_operand_by, swiglu_and_largest if measures else swiglu),
        activation_backward=partial(raw_operand_by, swiglu_backward_and_largest if measures else swiglu_backward),
    )
