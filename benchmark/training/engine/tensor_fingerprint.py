"""Fingerprints of tensors that do not depend on how the tensors are sharded, and one of all weights together.

A fingerprint is a sum over all values, modulo 2^64. Each term is the value's bits as a whole number, times one odd
64-bit factor for each axis, which follows from the value's place along that axis in the whole tensor. So the
fingerprints of the parts of several processes add up to that of the whole, in any order and exactly: the same bits have
the same fingerprint in every topology. Any single changed value changes the fingerprint; two changes cancel each other
in one of 2^32 cases at most. Fingerprints find accidents and exchanged files, but somebody can construct weights with a
given fingerprint; only training a run again proves it.

A fingerprint takes 20 bytes of memory traffic for each value, in two kernels for each axis.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.training.engine.adam import MOMENTS
from benchmark.training.engine.train_state import TrainState
from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.megatron_checkpoint import own_part
from model.sharding import parameter_shapes

AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Values processed at once, by kind of device; each takes 8 bytes. On a CPU they fit a core's cache, which is ten times
as fast as memory; on a GPU they need few kernels and bounded memory."""
MIX = (-0x61C8864680B583EB, -0x40A7B892E31B1A47)
"""Odd multipliers of a well-known mixing function (SplitMix64), as signed numbers of 64 bits."""


Factors = tuple[Tensor, Tensor]
"""Factors of the rows, and of the places in a row: int64."""


def fingerprint(values: Tensor, factors: Factors) -> Tensor:
    """Return the fingerprint of a part of an FP32 tensor, with the factors of its place: an int64 scalar that wraps
    around."""
    rows, columns = factors
    bits = values.detach().contiguous().view(torch.int32).reshape(len(rows), len(columns))
    at_once = max(1, AT_ONCE[values.device.type] // max(1, len(columns)))
    products = torch.empty((min(at_once, len(rows)), len(columns)), dtype=torch.int64, device=values.device)
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    for first in range(0, len(rows), at_once):
        block = bits[first : first + at_once]
        torch.mul(block, columns, out=products[: len(block)])
        total += (products[: len(block)].sum(-1) * rows[first : first + at_once]).sum()
    return total


def place_factors(box: Box, number: int, device: torch.device) -> Factors:
    """Return odd numbers that follow from the places along each axis of ``box``.

    ``number``: the tensor's own number, so that exchanged tensors do not cancel each other in a sum.
    """
    rows, *factors = (_mixed(part, axis, device) for axis, part in enumerate((slice(number, number + 1), *box)))
    if len(factors) > 1:
        rows = rows * factors.pop(0)
    columns = factors[0]
    for factor in factors[1:]:
        columns = (columns[:, None] * factor).flatten()
    return rows, columns


def _mixed(part: slice, axis: int, device: torch.device) -> Tensor:
    keys = torch.arange(part.start + 1, part.stop + 1, device=device) + (axis << 48)
    keys *= MIX[0]
    keys ^= keys >> 32
    keys *= MIX[1]
    keys ^= keys >> 29
    return keys | 1


class StateFingerprints:
    """Fingerprints of this process's part of the weights and moments, to be summed over all processes.

    A tensor that several processes hold counts on one of them.
    """

    def __init__(self, state: TrainState) -> None:
        self._state = state
        self._device = next(iter(state.parameters.values())).to_local().device
        elsewhere = state.tied_table.second_copies
        self._factors: dict[str, Factors] = {}
        for number, name in enumerate(parameter_shapes(state.benchmark.model)):
            if name in state.parameters and name not in elsewhere and is_first_copy(state.parameters[name]):
                _, box = own_part(state.parameters[name])
                self._factors[name] = place_factors(box, number, self._device)

    def weights(self) -> Tensor:
        """Return the weights' fingerprint: [2], int64, its upper and lower 32 bits, which any number of processes can
        add up."""
        return _halves(self._sum(self._state.parameters))

    def moments(self) -> Tensor:
        """Return the fingerprint of both moments together, in the form that :meth:`weights` has."""
        first, second = (self._sum(self._state.optimizer.moments()[moment]) for moment in MOMENTS)
        return _halves(first * MIX[0] + second)

    def _sum(self, tensors: Mapping[str, Tensor]) -> Tensor:
        total = torch.zeros((), dtype=torch.int64, device=self._device)
        for name, factors in self._factors.items():
            local, _ = own_part(tensors[name])
            total += fingerprint(local, factors)
        return total


def _halves(total: Tensor) -> Tensor:
    return torch.stack([(total >> 32) & 0xFFFFFFFF, total & 0xFFFFFFFF])


def as_text(halves: list[int]) -> str:
    """Return the sum of all processes' halves as 16 hexadecimal digits."""
    upper, lower = halves
    return f"{((upper << 32) + lower) % (1 << 64):016x}"


def is_first_copy(parameter: DTensor) -> bool:
    """Return whether this rank has the first copy of its part of the parameter."""
    coordinates = parameter.device_mesh.get_coordinate()
    assert coordinates is not None
    pairs = zip(coordinates, parameter.placements, strict=True)
    return all(coordinate == 0 for coordinate, placement in pairs if placement.is_replicate())
