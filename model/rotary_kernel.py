"""The rotary embedding (RoPE) of queries and keys in one matrix with the values: rotated before attention, and back
in its gradient.

llama31.py defines the rotation for a reader. Tensors are named by their axes: S sequence, B batch, N heads of queries
and K heads of keys and values of this rank, n all of these heads side by side, D head dimension.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from model.fused_kernel import fused
from model.llama31 import rope_angles


class Rotation(NamedTuple):
    """Factors of the two values of each pair at each position, FP32. A rotated value is the value times its cosine plus
    the other value of its pair times its sine."""

    cosine_S111d: Tensor
    """[S, 1, 1, 1, D / 2]"""
    sine_S112d: Tensor
    """[S, 1, 1, 2, D / 2]; the sines of the first values of pairs have the other sign."""


class RotaryTables:
    """The rotations of a head size, made once for each length and device."""

    def __init__(self, head_size: int) -> None:
        self._head_size = head_size
        self._rotations: dict[tuple[int, torch.device], Rotation] = {}

    def rotation(self, sequence: int, device: torch.device) -> Rotation:
        key = sequence, device
        if key not in self._rotations:
            angles_S11d = rope_angles(sequence, self._head_size, device).unsqueeze(1).unsqueeze(1)
            sine = angles_S11d.sin()
            self._rotations[key] = Rotation(angles_S11d.cos().unsqueeze(3), torch.stack([-sine, sine], dim=3))
        return self._rotations[key]


@fused(7.8)
def with_rotated_heads(
    q_SBND: Tensor, k_SBKD: Tensor, v_SBKD: Tensor, cosine_S111d: Tensor, sine_S112d: Tensor, backwards: bool
) -> Tensor:
    """Return rotated queries, rotated keys, and values side by side, [S, B, n, D]; computed in FP32 or wider and
    rounded once. ``backwards``: by the opposite angles."""
    q_SBND, k_SBKD = (rotated(x, cosine_S111d, sine_S112d, backwards) for x in (q_SBND, k_SBKD))
    return torch.cat([q_SBND, k_SBKD, v_SBKD], dim=2)


def rotated(x_SBnD: Tensor, cosine_S111d: Tensor, sine_S112d: Tensor, backwards: bool) -> Tensor:
    """Return queries or keys rotated, by the opposite angles if ``backwards``."""
    sequence, batch, heads, size = x_SBnD.shape
    pairs = x_SBnD.view(sequence, batch, heads, 2, size // 2)
    turned, across = pairs * cosine_S111d, pairs.flip(3) * sine_S112d
    pairs = turned - across if backwards else turned + across
    return pairs.view(sequence, batch, heads, size).to(x_SBnD.dtype)
