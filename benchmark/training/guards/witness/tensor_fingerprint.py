"""Fingerprints of tensors that do not depend on how they are sharded, and projections by which they are compared.

A fingerprint is the sum over all values, modulo 2^64, of a hash of the value's bits and of its place in the whole
tensor. So the parts of several processes add up to that of the whole, in any order: the same bits have the same
fingerprint in every topology. A projection is the sum of the values, each with a sign that follows from its place:
the difference of two tensors' projections is about as large as the L2 norm of their difference (a draw of a normal
distribution of that width).

Both take some 250 bytes of memory traffic for each value, in 16 kernels for every AT_ONCE values.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from checkpoint_convert.formats.boxes import Box

AT_ONCE = 1 << 22
"""Values fingerprinted at once, which bounds the memory it takes: 24 bytes for each."""
PLACE = (-0x61C8864680B583EB, -0x40A7B892E31B1A47)
BITS = (-0x6B2FB644ECCEEE15, -0x2917014799A6026D)
"""Odd multipliers of well-known mixing functions (SplitMix64, rrmxmx), as signed numbers of 64 bits."""
SIGN = -(1 << 31)
"""The bit of an FP32 value that is its sign."""


def fingerprint(values: Tensor, box: Box, shape: Sequence[int]) -> Tensor:
    """Of the part ``box`` of an FP32 tensor of that shape: a scalar, int64, which wraps around."""
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    for keys, bits in _pieces(values, box, shape):
        total += _hashes(keys, bits).sum()
    return total


def fingerprint_and_projection(values: Tensor, box: Box, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The fingerprint, and the projection: a scalar, float64."""
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    projection = torch.zeros((), dtype=torch.float64, device=values.device)
    for keys, bits in _pieces(values, box, shape):
        signs = (keys >> 32).to(torch.int32).bitwise_and_(SIGN)
        projection += signs.bitwise_xor_(bits).view(torch.float32).sum(dtype=torch.float64)
        total += _hashes(keys, bits).sum()
    return total, projection


def _pieces(values: Tensor, box: Box, shape: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Keys that follow from the places, int64, and bits, int32, of some rows at a time: both [rows, values of each].

    The keys may be overwritten.
    """
    if values.numel() == 0:
        return
    if not shape:
        values, box, shape = values.reshape(1), (slice(0, 1),), (1,)
    bits = values.detach().contiguous().view(torch.int32).reshape(values.shape[0], -1)
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    inner = torch.ones((), dtype=torch.int64, device=values.device)  # the first place is 1: it makes a difference
    for part, stride in zip(box[1:], strides[1:], strict=True):
        inner = inner.unsqueeze(-1) + torch.arange(part.start, part.stop, device=values.device) * stride
    inner = inner.flatten()
    at_once = max(1, AT_ONCE // bits.shape[1])
    for start in range(0, len(bits), at_once):
        some = bits[start : start + at_once]
        first = box[0].start + start
        rows = torch.arange(first, first + len(some), device=values.device).mul_(strides[0])
        keys = rows[:, None] + inner
        keys.mul_(PLACE[0])
        keys ^= keys >> 32
        keys.mul_(PLACE[1])
        yield keys, some


def _hashes(keys: Tensor, bits: Tensor) -> Tensor:
    """In the memory of ``keys``."""
    keys.bitwise_xor_(bits).mul_(BITS[0])
    keys ^= keys >> 32
    return keys.mul_(BITS[1])
