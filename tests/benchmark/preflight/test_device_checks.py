"""Checks of devices find what they are for."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.machine.gpus import DeviceReading
from benchmark.preflight import device_checks
from tests.benchmark.preflight.places import alone, large

H100: dict[str, Any] = {"names": ["NVIDIA H100 80GB HBM3"] * 8, "memory_gb": [85.0] * 8}


@pytest.mark.parametrize(
    ("machines", "outcome", "phrase"),
    [
        ([H100, H100], "ok", "8 x NVIDIA H100 80GB HBM3 on each of 2 machines"),
        (
            [H100, {"names": H100["names"][:7], "memory_gb": [85.0] * 7}],
            "FAILED",
            "node1: 7 GPUs; system dgxh100_n64 has 8",
        ),
        ([{"names": [], "memory_gb": []}], "FAILED", "node0: 0 GPUs"),
        ([H100, {"names": ["NVIDIA A100-SXM4-80GB"] * 8, "memory_gb": [85.0] * 8}], "FAILED", "different models"),
        ([{"names": ["NVIDIA H200"] * 8, "memory_gb": [150.0] * 8}], "warning", "but the system's is H100"),
        ([{"names": H100["names"] * 2, "memory_gb": [85.0] * 16}], "warning", "of which 8 would be used"),
    ],
)
def test_devices(machines: Sequence[Any], outcome: str, phrase: str) -> None:
    place = dataclasses.replace(alone(large(Path("run"))), kind="cuda")
    finding = device_checks.as_the_system_says(
        place, [(f"node{number}", found) for number, found in enumerate(machines)]
    )
    assert (finding.outcome, phrase in finding.found) == (outcome, True), finding


@pytest.mark.parametrize(("slowest", "outcome"), [(700.0, "ok"), (650.0, "warning"), (600.0, "FAILED")])
def test_a_slow_device(slowest: float, outcome: str) -> None:
    measured = [("node0", dict.fromkeys(range(8), 700.0)), ("node1", {0: 705.0, 1: slowest})]
    finding = device_checks.alike_in_speed(alone(large(Path("run"))), measured)
    assert finding.outcome == outcome
    assert ("node1 GPU 1 has" in finding.found) == (outcome != "ok")
    capped = device_checks.alike_in_speed(alone(large(Path("run"))), [("node0", {0: 400.0})])
    assert (capped.outcome, "40% of the peak" in capped.found) == ("warning", True)


def test_health(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, unknown = DeviceReading(uncorrected=0, remap_pending=0, remap_failed=0), DeviceReading()
    assert device_checks.judge_health([sound, unknown]).outcome == "ok"
    finding = device_checks.judge_health([sound, DeviceReading(uncorrected=3, remap_pending=1)])
    assert finding.outcome == "FAILED"
    assert finding.found == "GPU 1: 3 uncorrected memory errors, GPU 1: rows of its memory wait to be replaced"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    place = dataclasses.replace(alone(large(Path("run"))), kind="cuda")
    assert device_checks.health(place).outcome == "warning"


def test_one_wrong_number_in_a_product_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_checks.right_products(alone(None)).outcome == "ok"
    product = torch.Tensor.__matmul__

    def wrong(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        result = product(left, right)
        if result.dtype == torch.bfloat16:
            result[17, 5] += 1
        return result

    monkeypatch.setattr(torch.Tensor, "__matmul__", wrong)
    assert device_checks.right_products(alone(None)).outcome == "FAILED"


def test_a_gpu_for_each_process_is_counted_by_machine() -> None:
    def seen(machine: str, names: list[str], *, own: bool) -> dict[str, Any]:
        return {"names": names, "memory_gb": [80.0] * len(names), "machine": machine, "own": own}

    config = large(Path("run"))
    place = dataclasses.replace(alone(config), kind="cuda")
    h100 = "NVIDIA H100 80GB HBM3"
    own = [(f"node{rank // 8} rank {rank}", seen(f"node{rank // 8}", [h100], own=True)) for rank in range(16)]
    everyone = [(f"node0 rank {rank}", seen("node0", [h100] * 8, own=False)) for rank in range(8)]
    for measured, machines in ((own, " on each of 2 machines"), (everyone, "")):
        finding = device_checks.as_the_system_says(place, measured)
        assert (finding.outcome, finding.found) == ("ok", f"8 x {h100}{machines}")
    finding = device_checks.as_the_system_says(place, own[:15])
    assert finding.outcome == "FAILED"
    assert "node1 rank 8: 7 GPUs; system dgxh100_n64 has 8" in finding.found
