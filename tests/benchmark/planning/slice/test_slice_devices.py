"""How many layers the devices hold, and which devices there are."""

from collections.abc import Callable

import pytest
import torch

from benchmark.planning.slice import slice_devices as module
from benchmark.planning.slice.slice_config import SliceOptions
from benchmark.planning.slice.slice_devices import (
    DeviceFacts,
    budget_bytes,
    chosen_layers,
    device_facts,
    largest_fitting,
)
from foundation.errors import InputError

GPU = DeviceFacts("NVIDIA H100 80GB HBM3", 8, 80_000_000_000)
"""72 GB to be filled."""
TWO_STAGES = SliceOptions("gpt3_175b", pipeline_parallel=2)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], list[int]]:
    """Has the dry run count GB by a function of the layers; gives the layers it was asked about."""

    def count_by(gigabytes: Callable[[int], float]) -> list[int]:
        asked: list[int] = []

        def fullest(options: SliceOptions, facts: DeviceFacts, layers: int) -> int:
            asked.append(layers)
            return round(gigabytes(layers) * 1e9)

        monkeypatch.setattr(module, "fullest_bytes", fullest)
        return asked

    return count_by


Counted = Callable[[Callable[[int], float]], list[int]]


def test_as_many_fit_as_the_memory_holds(counted: Counted) -> None:
    counted(lambda layers: 20 + 9 * layers)
    assert largest_fitting(TWO_STAGES, GPU, 24) == 4  # 56 GB; 6 would be 74
    assert largest_fitting(TWO_STAGES, GPU, 2) == 2
    assert chosen_layers(TWO_STAGES, GPU) == 4
    assert chosen_layers(SliceOptions("gpt3_175b", layers=3), GPU) == 3


def test_a_guess_that_was_too_high_is_counted_down(counted: Counted) -> None:
    asked = counted(lambda layers: 10 if layers <= 4 else 100)
    assert largest_fitting(TWO_STAGES, GPU, 8) == 4
    assert asked == [2, 4, 8, 6, 4]


def test_what_does_not_fit_is_refused_with_what_does(counted: Counted) -> None:
    counted(lambda layers: 20 + 9 * layers)
    with pytest.raises(InputError, match=r"layers 8: .* 92.0 GB at the peak, .* 72.0 GB for it; --layers 4 fits$"):
        chosen_layers(SliceOptions("gpt3_175b", pipeline_parallel=2, layers=8), GPU)
    counted(lambda layers: 100)
    with pytest.raises(InputError, match=r"layers 2: .* raise --tensor-parallel"):
        chosen_layers(TWO_STAGES, GPU)
    with pytest.raises(InputError, match=r"layers 1: .* smaller --hidden-size"):
        chosen_layers(SliceOptions("gpt3_175b", device="cpu"), GPU)


def test_devices_of_this_machine() -> None:
    assert budget_bytes(SliceOptions("rehearsal", device="cpu", tensor_parallel=2), GPU) == 36_000_000_000
    assert 1 << 20 < device_facts("cpu").memory_bytes < 1 << 50
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "Some other device")
    assert [DeviceFacts(name, 8, 0).accelerator for name in names] == ["H100 SXM", "H200", ""]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_so_and_what_to_do() -> None:
    with pytest.raises(InputError, match=r"^device cuda: (PyTorch|no NVIDIA driver) .*CPU: --device cpu --width 7$"):
        device_facts("cuda", "--device cpu --width 7")
