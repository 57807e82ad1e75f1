"""Fingerprints of all weights and moments, of whichever parts this process has."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.training.engine.adam import MOMENTS
from benchmark.training.engine.train_state import TrainState
from benchmark.training.guards.witness.tensor_fingerprint import fingerprint, fingerprint_and_projection
from checkpoint_convert.formats.megatron_checkpoint import own_part
from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config
from model.sharding import WORDS

LOWER = (1 << 32) - 1


class StatePrints:
    """Rows of float64, to be summed up over all processes: exact, for a fingerprint's 64 bits are sent as two halves.

    What several processes hold counts on one of them.
    """

    def __init__(self, state: TrainState) -> None:
        self._state = state
        sizes = parameter_sizes(state.config.benchmark.model)
        self.names, self.sizes = tuple(sizes), tuple(sizes.values())
        place = {name: number for number, name in enumerate(self.names)}
        elsewhere = (WORDS,) if state.tied_table.is_second_copy else ()
        self._counted = [
            name for name, value in state.parameters.items() if name not in elsewhere and is_first_copy(value)
        ]
        device = next(iter(state.parameters.values())).to_local().device
        self._places = torch.tensor([place[name] for name in self._counted], dtype=torch.int64, device=device)

    def weights(self) -> Tensor:
        """Lower halves, upper halves, projections: [3 x names]."""
        prints, projections = [], []
        for part, box, shape in self._parts("model"):
            found, projection = fingerprint_and_projection(part, box, shape)
            prints.append(found)
            projections.append(projection)
        return torch.cat([*self._halves(prints), self._row(projections)])

    def moments(self) -> Tensor:
        """Lower halves and upper halves of each moment in turn: [4 x names]."""
        rows: list[Tensor] = []
        for moment in MOMENTS:
            rows += self._halves([fingerprint(*part) for part in self._parts(moment)])
        return torch.cat(rows)

    def _parts(self, kind: str) -> Iterator[tuple[Tensor, tuple[slice, ...], torch.Size]]:
        tensors = self._state.parameters if kind == "model" else self._state.optimizer.moments()[kind]
        for name in self._counted:
            tensor = tensors[name].detach()
            yield *own_part(tensor), tensor.shape

    def _halves(self, prints: list[Tensor]) -> tuple[Tensor, Tensor]:
        if not prints:
            return self._row([]), self._row([])
        together = torch.stack(prints)
        return self._row([(together & LOWER).double()]), self._row([((together >> 32) & LOWER).double()])

    def _row(self, values: list[Tensor]) -> Tensor:
        """At the places of this process's parameters, 0 elsewhere."""
        row = torch.zeros(len(self.names), dtype=torch.float64, device=self._places.device)
        if values:
            row[self._places] = values[0] if values[0].dim() else torch.stack(values)
        return row


def parameter_sizes(model: GPT3Config) -> dict[str, int]:
    """Number of values of all parameters by name, in the model's own order: the same on all processes."""
    with torch.device("meta"):
        return {name: parameter.numel() for name, parameter in GPT3(model).named_parameters()}


def is_first_copy(parameter: DTensor) -> bool:
    """Whether of the processes that hold the same part of the parameter this is the first."""
    coordinate = parameter.device_mesh.get_coordinate()
    assert coordinate is not None
    pairs = zip(coordinate, parameter.placements, strict=True)
    return all(place == 0 for place, placement in pairs if placement.is_replicate())
