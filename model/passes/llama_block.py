"""Llama 3.1's own parts of a block: RMSNorm, joined matrix products, attention with rotary embedding and shared keys,
SwiGLU.

llama31.py defines the model for a reader; block_pass.py has the order of computation and messages. Tensors
are named by their axes: S sequence, B batch, T all tokens (sequence first), N heads of queries and K heads of keys and
values of this rank, D head dimension.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from model.kernels import NormState, rms_norm_backward, rms_norm_forward, swiglu, swiglu_backward
from model.llama31 import rope_angles, rotated
from model.llama31_config import Llama31Config
from model.passes.attention import Attended, AttentionLayout, Kernel, as_rows, kernel_for
from model.passes.block_pass import BlockParts
from model.passes.linear.linear_pass import LinearPass
from model.passes.tensor_group import TensorGroup
from model.passes.whole_parameter import WholeParameter


class RmsNormPass:
    """RMSNorm, whose stored weight is the gain."""

    def __init__(self, parameters: Mapping[str, WholeParameter], name: str) -> None:
        self._gain = parameters[f"{name}.weight"]

    def refresh(self) -> None:
        """Do nothing: no other tensor follows from the weights."""

    def forward(self, x_tH: Tensor) -> tuple[Tensor, NormState]:
        return rms_norm_forward(x_tH, self._gain.value)

    def backward(self, gradient_tH: Tensor, x_tH: Tensor, state: NormState) -> Tensor:
        of_input, of_gain = rms_norm_backward(gradient_tH, x_tH, state, self._gain.value)
        self._gain.add(of_gain)
        return of_input


def _rotation(sequence: int, head_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [S, D / 2], FP32. They cost little against a block's other work, so no pass keeps
    them."""
    angles = rope_angles(sequence, head_size, device)
    return angles.cos(), angles.sin()


@dataclass(frozen=True)
class GroupedHeads:
    """Attention over one micro-batch, and the tensors for its backward pass. Queries and keys are rotated. Keys and
    values are stored once for all heads that share them."""

    q_BNSD: Tensor
    k_BKSD: Tensor
    v_BKSD: Tensor
    attended: Attended
    kernel: Kernel

    def out(self) -> Tensor:
        """[S x B, N x D]"""
        return as_rows(self.attended.out_BNSD)

    def backward(self, gradient: Tensor) -> Tensor:
        """Return the gradient of queries, keys and values side by side, [S x B, (N + 2 K) x D]. ``gradient``: of
        :meth:`out`."""
        batch, heads, sequence, size = self.q_BNSD.shape
        gradient_BNSD = gradient.view(sequence, batch, heads, size).permute(1, 2, 0, 3)
        k_BNSD, v_BNSD = (_for_every_head(shared, heads) for shared in (self.k_BKSD, self.v_BKSD))
        of_q, of_k, of_v = self.kernel.backward(gradient_BNSD, self.q_BNSD, k_BNSD, v_BNSD, self.attended)
        groups = batch, self.k_BKSD.shape[1], -1, sequence, size
        of_k, of_v = (of_heads.reshape(groups).sum(2) for of_heads in (of_k, of_v))
        cosine, sine = _rotation(sequence, size, gradient.device)
        of_q, of_k = (rotated(x, cosine, -sine) for x in (of_q, of_k))
        return torch.cat([as_rows(x) for x in (of_q, of_k, of_v)], dim=1)


def attend_grouped(
    qkv: Tensor, *, batch: int, heads: int, shared_heads: int, kernel: Kernel | None = None
) -> GroupedHeads:
    """Causal attention over whole windows, by ``kernel`` or the chosen one. ``qkv``: [S x batch, (heads + 2 shared
    heads) x D]."""
    sequence, size = qkv.shape[0] // batch, qkv.shape[1] // (heads + 2 * shared_heads)
    of_heads_SBnD = qkv.view(sequence, batch, -1, size)
    q_BNSD, k_BKSD, v_BKSD = (
        part.permute(1, 2, 0, 3) for part in torch.split(of_heads_SBnD, [heads, shared_heads, shared_heads], dim=2)
    )
    cosine, sine = _rotation(sequence, size, qkv.device)
    q_BNSD, k_BKSD = (rotated(x, cosine, sine) for x in (q_BNSD, k_BKSD))
    v_BKSD = v_BKSD.contiguous()  # a view would keep all of ``qkv`` in memory
    k_BNSD, v_BNSD = (_for_every_head(x, heads) for x in (k_BKSD, v_BKSD))
    kernel = kernel or kernel_for(q_BNSD)
    return GroupedHeads(q_BNSD, k_BKSD, v_BKSD, kernel.forward(q_BNSD, k_BNSD, v_BNSD), kernel)


def _for_every_head(x_BKSD: Tensor, heads: int) -> Tensor:
    """Repeat keys or values for the heads that share them: [B, N, S, D]."""
    times = heads // x_BKSD.shape[1]
    return x_BKSD if times == 1 else x_BKSD.repeat_interleave(times, dim=1)


def llama31_attention(sizes: Llama31Config, ranks: int, batch: int) -> AttentionLayout:
    heads, shared = sizes.num_attention_heads // ranks, sizes.num_key_value_heads // ranks
    columns = [count * sizes.head_size for count in (heads, shared, shared)]
    return AttentionLayout(
        lambda qkv: torch.split(qkv, columns, dim=1),
        partial(attend_grouped, batch=batch, heads=heads, shared_heads=shared),
    )


def llama31_block(
    parameters: Mapping[str, WholeParameter],
    group: TensorGroup,
    sizes: Llama31Config,
    batch: int,
    linear: Callable[..., LinearPass],
) -> BlockParts:
    """``parameters``: by their names in ``llama31.py``'s block; ``batch``: samples of a micro-batch;
    ``linear``: makes a linear layer (linear/linear_formats.py)."""
    return BlockParts(
        norm_x=RmsNormPass(parameters, "input_layernorm"),
        norm_y=RmsNormPass(parameters, "post_attention_layernorm"),
        into_attention=linear(parameters, *(f"self_attn.{name}_proj" for name in "qkv")),
        out_of_attention=linear(parameters, "self_attn.o_proj"),
        attend=llama31_attention(sizes, group.size, batch).attend,
        into_mlp=linear(parameters, "mlp.gate_proj", "mlp.up_proj"),
        out_of_mlp=linear(parameters, "mlp.down_proj"),
        activation=swiglu,
        activation_backward=swiglu_backward,
    )
