"""Fingerprints: what they are, and that they do not depend on how tensors are cut."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmark.config.run_config import RunConfig
from benchmark.training.engine import tensor_fingerprint
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.tensor_fingerprint import (
    StateFingerprints,
    as_text,
    fingerprint,
    place_factors,
)
from checkpoint_convert.formats.boxes import Box, whole_box
from model.sharding import parameter_shapes
from tests.benchmark.runs import loaded_state, system_of
from tests.benchmark.tiny import Inputs, in_processes

WHOLE = 1 << 64


def of(tensor: Tensor, number: int = 0) -> int:
    return int(fingerprint(tensor, place_factors(whole_box(tensor.shape), number, tensor.device))) % WHOLE


def by_hand(tensor: Tensor, number: int) -> int:
    """The definition, value by value, in Python's own numbers."""

    def factor(place: int, axis: int) -> int:
        key = (place + 1 + (axis << 48)) * 0x9E3779B97F4A7C15 % WHOLE
        key = (key ^ _shifted(key, 32)) * 0xBF58476D1CE4E5B9 % WHOLE
        return (key ^ _shifted(key, 29)) | 1

    total = 0
    for places, value in np.ndenumerate(tensor.numpy()):
        term = int(np.float32(value).view(np.int32))
        for axis, place in enumerate((number, *places)):
            term *= factor(place, axis)
        total += term
    return total % WHOLE


def _shifted(number: int, places: int) -> int:
    """A signed shift: the sign fills what is left free."""
    return (number >> places) | ((WHOLE - (1 << (64 - places))) if number >> 63 else 0)


@pytest.mark.parametrize("shape", [(1,), (257,), (9, 31), (3, 5, 7), (0, 4)])
def test_definition(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    assert of(tensor, 5) == by_hand(tensor, 5)


@pytest.mark.parametrize("at_once", [1, 70, 1 << 22])
def test_parts_add_up_to_the_whole(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_fingerprint, "AT_ONCE", {"cpu": at_once})
    tensor = torch.randn(12, 10, generator=torch.Generator().manual_seed(1))
    boxes: list[Box] = [
        (slice(0, 5), slice(0, 4)),
        (slice(5, 12), slice(0, 4)),
        (slice(0, 1), slice(4, 10)),
        (slice(1, 12), slice(4, 10)),
        (slice(12, 12), slice(0, 10)),
    ]
    parts = [int(fingerprint(tensor[box], place_factors(box, 3, tensor.device))) for box in boxes]
    assert sum(parts) % WHOLE == by_hand(tensor, 3)


def test_values_and_places_are_told_apart() -> None:
    random = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    assert of(random) == of(random.clone())
    swapped, last_bit, signs = random.clone(), random.clone(), random.clone()
    swapped[[3, 900]] = random[[900, 3]]
    last_bit.view(torch.int32)[500] ^= 1
    signs[[1, 2]] *= -1
    others = (random, swapped, last_bit, signs, -random, random.reshape(10, 100), random.reshape(10, 100).T)
    assert len({of(tensor) for tensor in others}) == len(others)
    assert of(random, 1) != of(random, 2)
    assert of(torch.tensor([0.0])) != of(torch.tensor([-0.0]))


def _fingerprints(config: RunConfig) -> tuple[str, str, str]:
    """Of weights and moments as all processes have them; of the weights as one process computes them alone."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        own = StateFingerprints(state)
        sums = [own.weights(), own.moments()]
        for one in sums:
            torch.distributed.all_reduce(one)
        alone = 0
        for number, name in enumerate(parameter_shapes(config.benchmark.model)) if world.size == 1 else ():
            alone += of(state.parameters[name].detach().full_tensor(), number)  # type: ignore[attr-defined]
        weights, moments = (as_text(one.tolist()) for one in sums)
        return weights, moments, f"{alone % WHOLE:016x}"


@pytest.mark.slow
def test_a_topology_of_many_processes_gives_the_same_as_one(inputs: Inputs, tmp_path: Path) -> None:
    ((weights, moments, alone),) = in_processes(1, _fingerprints, inputs.config(tmp_path))
    assert weights == alone
    assert moments not in (weights, "0" * 16)
    system = system_of(6, tensor_parallel=2, pipeline_parallel=3, micro_batch_size=3)
    for results in in_processes(system.num_devices, _fingerprints, inputs.config(tmp_path, system=system)):
        assert results[:2] == (weights, moments)
