"""Checks of devices find what they are for."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.planning.preflight import device_checks
from benchmark.training.machine.gpus import DeviceReading
from tests.benchmark.planning.preflight.places import alone, large

H100 = ("NVIDIA H100 80GB HBM3", 85.0)


def seen(machine: str, *devices: tuple[str, float], first: int = 0) -> tuple[str, dict[str, tuple[str, float]]]:
    return machine, {f"{machine} {number}": device for number, device in enumerate(devices, first)}


@pytest.mark.parametrize(
    ("found", "outcome", "phrase"),
    [
        ([seen("node0", *[H100] * 8), seen("node1", *[H100] * 8)], "ok", "8 x NVIDIA H100 80GB HBM3 on each of 2"),
        ([seen("node0", *[H100] * 8)] * 8, "ok", "8 x NVIDIA H100 80GB HBM3"),
        ([seen(f"node{one // 8}", H100, first=one) for one in range(16)], "ok", "on each of 2 machines"),
        (
            [seen(f"node{one // 8}", H100, first=one) for one in range(15)],
            "FAILED",
            "node1: 7 GPUs; system dgxh100",
        ),
        ([seen("node0")], "FAILED", "node0: 0 GPUs"),
        ([seen("node0", *[H100] * 8), seen("node1", *[("A100", 85.0)] * 8)], "FAILED", "different models"),
        ([seen("node0", *[("NVIDIA H200", 150.0)] * 8)], "warning", "but the system's is H100"),
    ],
)
def test_devices(found: Sequence[Any], outcome: str, phrase: str) -> None:
    process = dataclasses.replace(alone(large(Path("run"))), kind="cuda")
    finding = device_checks.as_the_system_says(process, [(f"rank {rank}", one) for rank, one in enumerate(found)])
    assert (finding.outcome, phrase in finding.text) == (outcome, True), finding


@pytest.mark.parametrize(("slowest", "outcome"), [(700.0, "ok"), (650.0, "warning"), (600.0, "FAILED")])
def test_a_slow_device(slowest: float, outcome: str) -> None:
    measured = [("node0", dict.fromkeys(range(8), 700.0)), ("node1", {0: 705.0, 1: slowest})]
    finding = device_checks.alike_in_speed(alone(large(Path("run"))), measured)
    assert finding.outcome == outcome
    assert ("node1 GPU 1 has" in finding.text) == (outcome != "ok")
    capped = device_checks.alike_in_speed(alone(large(Path("run"))), [("node0", {0: 400.0})])
    assert (capped.outcome, "40% of the peak" in capped.text) == ("warning", True)


def test_health(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, unknown = DeviceReading(uncorrected=0, remap_pending=0, remap_failed=0), DeviceReading()
    assert device_checks.judge_health([sound, unknown]).outcome == "ok"
    finding = device_checks.judge_health([sound, DeviceReading(uncorrected=3, remap_pending=1, reasons=0x40)])
    assert finding.outcome == "FAILED"
    rows = "GPU 1: rows of its memory wait to be replaced; reset the GPU after the run"
    assert finding.text == f"GPU 1: 3 uncorrected memory errors, {rows}"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    process = dataclasses.replace(alone(large(Path("run"))), kind="cuda")
    assert device_checks.health(process).outcome == "warning"


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
