"""The device of a rank, and what is set for its products."""

import dataclasses
import os
from types import SimpleNamespace

import pytest
import torch

from benchmark.config.benchmarks import REHEARSAL
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.training.engine import rank_device
from benchmark.training.engine.rank_device import device_of, linear_formats, pci_address, require_format
from benchmark.training.engine.rank_environment import Environment, read_environment
from foundation.errors import InputError


@pytest.mark.parametrize(
    ("visible", "count", "index"),
    [
        (None, 8, 3),
        ("0,1,2,3,4,5,6,7", 8, 3),
        ("5", 1, 0),  # as Slurm gives each process its own, whatever its number
        (None, 1, None),  # a machine with one GPU for eight processes
        ("0,1", 2, None),
    ],
)
def test_device_of_a_process(
    visible: str | None, count: int, index: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[torch.device] = []
    near: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    place = SimpleNamespace(pci_domain_id=1, pci_bus_id=0x1B, pci_device_id=2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: place)
    monkeypatch.setattr(rank_device, "keep_near", lambda own, others: near.append((own, len(others))))
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True  # as it is by itself
    process = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for name, value in process.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    system = System(name="eight", device="cuda", nodes=1, devices_per_node=8, micro_batch_size=1)
    assert pci_address(torch.device("cuda", 0)) == "0001:1b:02.0"
    if index is None:
        with pytest.raises(InputError, match=f"needs 8 CUDA devices per machine; PyTorch sees {count} here"):
            device_of(system, read_environment())
        return
    assert device_of(system, read_environment()) == torch.device("cuda", index)
    assert chosen == [torch.device("cuda", index)]
    assert near == [("0001:1b:02.0", count)]
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction


def test_threads_of_a_cpu_rank_are_its_share_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    system = System(name="four", device="cpu", nodes=1, devices_per_node=4, micro_batch_size=1)
    for threads in (None, 5):
        device_of(system, Environment(0, 4, 0, threads=threads))
    assert numbers == [3, 5]


@pytest.mark.parametrize(
    ("precision", "fp8_weight_gradients", "bf16_layers", "expected"),
    [
        ("bf16", True, (1, 1), ["plain"] * 4),
        ("fp32", True, (0, 0), ["plain"] * 4),
        ("fp8", True, (0, 0), ["fp8"] * 4),
        ("fp8", False, (0, 0), ["fp8_bf16_gradients"] * 4),
        ("fp8", True, (1, 2), ["plain", "fp8", "plain", "plain"]),
    ],
)
def test_formats_of_linear_layers(
    precision: Precision, fp8_weight_gradients: bool, bf16_layers: tuple[int, int], expected: list[str]
) -> None:
    system = dataclasses.replace(SYSTEMS["cpu_p1"], fp8_weight_gradients=fp8_weight_gradients)
    linear = linear_formats(precision, REHEARSAL.model, system, bf16_layers)
    assert [linear(layer) for layer in range(REHEARSAL.model.num_layers)] == expected


@pytest.mark.parametrize(
    ("capability", "has_fp8"), [((8, 0), False), ((8, 6), False), ((8, 9), True), ((9, 0), True), ((10, 0), True)]
)
def test_a_gpu_without_fp8_is_refused(
    capability: tuple[int, int], has_fp8: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    require_format("bf16", gpu)
    require_format("fp8", cpu)
    if has_fp8:
        require_format("fp8", gpu)
        return
    with pytest.raises(InputError, match=rf"a GPU has compute capability 8.{capability[1]}; FP8 begins at 8.9 .* bf16"):
        require_format("fp8", gpu)
