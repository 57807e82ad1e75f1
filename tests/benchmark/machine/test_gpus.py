"""GPUs by a stand-in for NVML: readings, facts, the fields of the system description, and where there is none."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from benchmark.machine.gpus import FIGURES, DeviceReading, all_gpus, gpu_facts, gpu_of
from benchmark.machine.hardware import NO_ACCELERATORS, accelerators
from stage.errors import InputError


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
