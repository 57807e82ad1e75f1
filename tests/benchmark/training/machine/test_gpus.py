"""GPUs by a stand-in for NVML: readings, facts, what turns bad, the system's fields, and where there is none."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from benchmark.planning.machine.hardware import NO_ACCELERATORS, accelerators
from benchmark.training.machine.gpus import (
    FIGURES,
    TROUBLE,
    DeviceHealth,
    DeviceReading,
    all_gpus,
    gpu_facts,
    gpu_of,
    new_faults,
)
from foundation.errors import InputError


def test_reading_of_a_device(nvml: ModuleType) -> None:
    reading = gpu_of("abc", 3).read()
    assert reading == DeviceReading(98, 1095, 1980, 412.3, 700, 91, 0x44, 7, 0, 1, 0, 7)
    assert reading.line() == "clocks 1,095 of 1,980 MHz, thermal slowdown, at its power limit, 91 °C, 412 of 700 W"
    assert DeviceReading.of_row(reading.row()) == reading


def test_what_a_device_does_not_say_is_unknown(nvml: ModuleType) -> None:
    nvml.SAYS.clear()
    nvml.SAYS["nvmlDeviceGetTemperature", 0] = 40
    reading = gpu_of(None, 2).read()
    assert (reading.line(), DeviceReading().line()) == ("40 °C", "")
    assert (reading.is_known(), DeviceReading().is_known()) == (True, False)
    assert reading.row() == [-1, -1, -1, -1, -1, 40, *[-1] * (FIGURES - 6)]
    assert gpu_facts() == {"driver": "560.35.03", "models": {"unknown": 3}, "now": ["40 °C"] * 3}


def test_fields_of_the_description(nvml: Any) -> None:
    fields, stack = accelerators()
    assert {name: value for name, value in fields.items() if value} == {
        "accelerators_per_node": "3",
        "accelerator_model_name": "NVIDIA H100 80GB HBM3",
        "accelerator_memory_capacity": "81559 MiB",
        "accelerator_frequency": "1980 MHz at most",
        "accelerator_host_interconnect": "PCIe Gen5 x16",
        "accelerator_interconnect": "18 NVLinks, 478 GB/s in each direction",
    }
    assert stack == {"nvidia_driver": "560.35.03"}
    nvml.SAYS["nvmlDeviceGetName", "number 0"] = "NVIDIA H100 PCIe"
    fields, _ = accelerators()
    assert fields["accelerator_model_name"] == "1x NVIDIA H100 PCIe, 2x NVIDIA H100 80GB HBM3"


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there are accelerators here")
@pytest.mark.parametrize("lacking", ["package", "driver"])
def test_without_a_gpu_it_says_why(lacking: str, nvml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "NVML finds no GPU: Driver Not Loaded"
    if lacking == "package":
        monkeypatch.setitem(sys.modules, "pynvml", None)
        told = "asking the GPUs needs nvidia-ml-py: pip install nvidia-ml-py"
    monkeypatch.setattr(nvml, "COUNT", 0)
    with pytest.raises(InputError, match=told):
        all_gpus()
    assert (gpu_facts(), accelerators()) == ({}, (NO_ACCELERATORS, {}))


GOOD = DeviceReading(99, 1980, 1980, 650, 700, 61, 0, 3, 0, 0, 0, 12)


def changed(**fields: float) -> DeviceReading:
    return DeviceReading(**{**vars(GOOD), **fields})


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (changed(), {}),
        (changed(reasons=4), {}),
        (changed(corrected=30), {}),
        (
            changed(reasons=0x40, clock_mhz=1095),
            {"thermal slowdown": "thermal slowdown: clocks 1,095 of 1,980 MHz, thermal slowdown, 61 °C, 650 of 700 W"},
        ),
        (changed(uncorrected=2), {"uncorrected": "2 uncorrected memory errors"}),
        (changed(corrected=5003), {"corrected": "5,000 corrected memory errors in a short time"}),
        (changed(link_errors=20), {"links": "8 errors on its NVLinks"}),
        (
            changed(remap_failed=1),
            {"remap failed": "rows of its memory could not be replaced; have the GPU exchanged"},
        ),
    ],
)
def test_what_new_faults(now: DeviceReading, told: dict[str, str]) -> None:
    assert new_faults(GOOD, now) == told
    assert new_faults(now, now) == {}


def test_what_was_bad_before_the_run_is_told_and_old_link_errors_are_not() -> None:
    first = changed(uncorrected=1, remap_pending=1, link_errors=99, corrected=9999)
    assert set(new_faults(None, first)) == {"uncorrected", "remap pending"}


def test_nothing_turns_bad_while_the_figures_of_trouble_stay() -> None:
    stays = changed(clock_mhz=900, power_w=100, temperature_c=95)
    assert stays.row()[TROUBLE] == GOOD.row()[TROUBLE]
    for worse in (changed(reasons=8), changed(corrected=9000), changed(remap_pending=1), changed(link_errors=13)):
        assert worse.row()[TROUBLE] != GOOD.row()[TROUBLE]


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_thread_keeps_the_newest_readings_until_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: Iterator[DeviceReading] = iter([GOOD, GOOD, changed(temperature_c=80)])
    health = DeviceHealth(lambda: lambda: next(readings), interval_s=0.01, keep=2)
    eventually(lambda: (health.newest() or GOOD).temperature_c == 80)
    assert [one.temperature_c for _, one in health.readings] == [61, 80]
    monkeypatch.setattr("benchmark.training.machine.gpus.TOO_OLD_S", 0.0)
    assert health.newest() is None
    health.close()


def test_a_device_that_hangs_holds_nobody_up() -> None:
    hangs = threading.Event()
    health = DeviceHealth(lambda: SimpleNamespace(read=lambda: hangs.wait()).read)
    assert health.newest() is None
    hangs.set()
