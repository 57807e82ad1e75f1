"""Fingerprints and projections: what they are, and that they do not depend on how a tensor is cut."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmark.training.guards.witness import tensor_fingerprint
from benchmark.training.guards.witness.tensor_fingerprint import fingerprint, fingerprint_and_projection
from checkpoint_convert.formats.boxes import Box, whole_box

WHOLE = 1 << 64


def of(tensor: Tensor) -> int:
    return int(fingerprint(tensor, whole_box(tensor.shape), tensor.shape)) % WHOLE


def by_hand(tensor: Tensor) -> tuple[int, float]:
    """The definition, value by value, in Python's own numbers."""

    def folded(number: int) -> int:
        """A signed shift: the sign fills what is left free."""
        return number ^ ((number >> 32) | ((WHOLE - (1 << 32)) if number >> 63 else 0))

    total, projection = 0, 0.0
    for place, value in enumerate(tensor.flatten().numpy(), 1):
        key = folded(place * 0x9E3779B97F4A7C15 % WHOLE) * 0xBF58476D1CE4E5B9 % WHOLE
        bits = int(np.float32(value).view(np.int32)) % WHOLE
        total += folded((key ^ bits) * 0x94D049BB133111EB % WHOLE) * 0xD6E8FEB86659FD93
        projection += -float(value) if key >> 63 else float(value)
    return total % WHOLE, projection


@pytest.mark.parametrize("shape", [(), (1,), (257,), (9, 31), (3, 5, 7)])
def test_definition(shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found, projection = fingerprint_and_projection(tensor, whole_box(shape), shape)
    expected = by_hand(tensor)
    assert int(found) % WHOLE == expected[0]
    assert float(projection) == pytest.approx(expected[1], rel=1e-12)
    assert of(tensor) == expected[0]


@pytest.mark.parametrize("at_once", [1, 7, 1 << 22])
def test_parts_add_up_to_the_whole(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_fingerprint, "AT_ONCE", at_once)
    tensor = torch.randn(12, 10, generator=torch.Generator().manual_seed(1))
    boxes: list[Box] = [
        (slice(0, 5), slice(0, 4)),
        (slice(5, 12), slice(0, 4)),
        (slice(0, 1), slice(4, 10)),
        (slice(1, 12), slice(4, 10)),
        (slice(12, 12), slice(0, 10)),
    ]
    found = [fingerprint_and_projection(tensor[box], box, tensor.shape) for box in boxes]
    assert sum(int(one) for one, _ in found) % WHOLE == by_hand(tensor)[0]
    assert sum(float(one) for _, one in found) == pytest.approx(by_hand(tensor)[1])


def test_values_and_places_are_told_apart() -> None:
    random = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    assert of(random) == of(random.clone())
    swapped, last_bit = random.clone(), random.clone()
    swapped[[3, 900]] = random[[900, 3]]
    last_bit.view(torch.int32)[500] ^= 1
    tensors = (random, swapped, last_bit, -random, torch.zeros(1000), torch.zeros(999), random.reshape(10, 100).T)
    assert len({of(tensor) for tensor in tensors}) == len(tensors)
    assert of(torch.tensor([0.0])) != of(torch.tensor([-0.0]))


def test_one_bit_changes_half_of_the_bits() -> None:
    """Over 2,000 flips of a random bit; a linear sum would change the same few bits."""
    random = torch.Generator().manual_seed(1)
    tensor = torch.randn(200, generator=random)
    before, changed = of(tensor), []
    for _ in range(2000):
        other = tensor.clone()
        other.view(torch.int32)[int(torch.randint(200, (), generator=random))] ^= 1 << int(
            torch.randint(31, (), generator=random)
        )
        changed.append(of(other) ^ before)
    counts = [sum(number >> bit & 1 for number in changed) for bit in range(64)]
    assert min(counts) > 1000 - 6 * math.sqrt(500)
    assert max(counts) < 1000 + 6 * math.sqrt(500)


def test_projections_differ_as_much_as_the_tensors() -> None:
    """The difference over the norm of the difference is a draw of the standard normal distribution."""
    random = torch.Generator().manual_seed(1)
    draws = []
    for _ in range(300):
        difference = 1e-5 * torch.randn(40, 50, generator=random, dtype=torch.float32)
        projection = fingerprint_and_projection(difference, whole_box((40, 50)), (40, 50))[1]
        draws.append(float(projection / difference.norm().double()))
    assert np.mean(draws) == pytest.approx(0.0, abs=0.25)
    assert np.std(draws) == pytest.approx(1.0, abs=0.2)


class _Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts kernels and the bytes they read and write; views are none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels = self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        aliases = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        if not aliases:
            self.kernels += 1
            tensors = [one for one in (*args, result) if isinstance(one, Tensor)]
            self.bytes += sum(one.numel() * one.element_size() for one in tensors)
        return result


# Of dgxh100_n64: tensor 4, pipeline 8, 16 shards: a rank's parts of a layer, of which it has 12.
LAYER = [(576, 12288), (576,), (768, 3072), (768,), (768, 12288), (768,), (768, 12288), (768,)]
LAYER += [(768,)] * 4


def test_traffic_on_a_rank_of_512() -> None:
    """The figures in docs/evidence.md."""
    with _Traffic() as counted:
        for shape in LAYER * 12:
            fingerprint_and_projection(torch.empty(shape, device="meta"), whole_box(shape), shape)
    values = 12 * sum(math.prod(shape) for shape in LAYER)
    assert values == pytest.approx(174.6e9 / 512, rel=0.05)
    assert counted.bytes / values == pytest.approx(236, abs=2)
    assert counted.kernels == pytest.approx(4800, abs=100)
