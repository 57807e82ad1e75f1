"""Allocate host memory to copy tensors of a GPU into: page-locked, and little more than the tensors' size.

PyTorch takes page-locked memory in powers of two (CachingHostAllocator.h, 2.11 to 2.13). With one allocation for each
tensor, the copies of a rank of the 175B model took 1.63 times their size. Here tensors share pieces whose size is close
to a power of two: 1.02 times.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

PIECE = 1 << 28
"""Bytes of a piece; larger if it would not hold four of the largest tensors."""
ALIGNMENT = 512
"""Bytes to which the start of each tensor is aligned, as on a device."""


def host_copies(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return room on the host for each of ``parts``, by name: same shape and dtype, contiguous, with a storage of its
    own.

    The room is page-locked if the parts are on a GPU, so that copies to it do not wait for the host.
    """
    if not any(part.is_cuda for part in parts.values()):
        return {name: torch.empty(part.shape, dtype=part.dtype) for name, part in parts.items()}
    places, lengths = packed([part.nbytes for part in parts.values()])
    pieces = [torch.empty(length, dtype=torch.uint8, pin_memory=True).numpy() for length in lengths]
    copies = {}
    for (name, part), (number, start) in zip(parts.items(), places, strict=True):
        # Through NumPy a part of the piece is a storage: of a view, checkpoints write a clone.
        room = torch.from_numpy(pieces[number][start : start + part.nbytes])
        copies[name] = room.view(part.dtype).view(part.shape)
    return copies


def packed(sizes: Sequence[int], piece: int = PIECE) -> tuple[list[tuple[int, int]], list[int]]:
    """Place parts of the given bytes: return the piece number and offset of each, and the pieces' lengths in bytes.

    The largest parts come first; each goes into the first piece that has room for it.
    """
    largest = max(sizes, default=0)
    piece = max(piece, 4 << max(0, _aligned(largest) - 1).bit_length())
    places: list[tuple[int, int]] = [(0, 0)] * len(sizes)
    lengths: list[int] = []
    for which in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        size = _aligned(sizes[which])
        number = next((n for n, used in enumerate(lengths) if used + size <= piece), len(lengths))
        if number == len(lengths):
            lengths.append(0)
        places[which] = number, lengths[number]
        lengths[number] += size
    return places, lengths


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
