"""Accelerators by nvidia-smi, and where there is none."""

import pytest
import torch

from benchmark.machine.gpu_query import NONE, accelerators, by_nvidia_smi
from tests.benchmark.machine.answers import GPU, NVLINK, TOPOLOGY


def test_gpus_by_nvidia_smi() -> None:
    fields, stack = by_nvidia_smi(GPU * 3, NVLINK, TOPOLOGY)
    assert fields == {
        "accelerators_per_node": "3",
        "accelerator_model_name": "NVIDIA H100 80GB HBM3",
        "accelerator_memory_capacity": "81559 MiB",
        "accelerator_memory_configuration": "HBM3",
        "accelerator_frequency": "1980 MHz at most",
        "accelerator_host_interconnect": "PCIe Gen5 x16",
        "accelerator_interconnect": "18 NVLinks, 478 GB/s in each direction",
        "accelerator_interconnect_topology": "3 pairs NV18 (nvidia-smi topo)",
    }
    assert stack == {"nvidia_driver": "560.35.03"}


@pytest.mark.parametrize("answer", ["", "No devices were found\n", "Failed to initialize NVML, reason, x\n"])
def test_nvidia_smi_that_fails_says_nothing(answer: str) -> None:
    assert by_nvidia_smi(answer, "", "") == ({}, {})


def test_one_gpu_has_no_connections() -> None:
    fields, _ = by_nvidia_smi(GPU, "", "")
    assert (fields["accelerator_interconnect"], fields["accelerator_interconnect_topology"]) == ("", "")


def test_gpus_that_differ_are_listed_with_their_numbers() -> None:
    other = GPU.replace("H100 80GB HBM3", "H100 PCIe").replace("81559", "[N/A]")
    fields, _ = by_nvidia_smi(other + GPU * 2, "", "")
    assert fields["accelerator_model_name"] == "1x NVIDIA H100 PCIe, 2x NVIDIA H100 80GB HBM3"
    assert "accelerator_memory_capacity" not in fields
    assert "accelerator_memory_configuration" not in fields  # the PCIe model's differs


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there are accelerators here")
def test_machine_without_accelerators_has_none() -> None:
    assert accelerators() == (NONE, {})
