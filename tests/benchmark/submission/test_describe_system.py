"""What is read of a machine, by answers of its programs, and what is left for a person."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.machine import hardware
from benchmark.machine.gpu_query import by_nvidia_smi
from benchmark.review.rules.system_rules import REQUIRED
from benchmark.submission.system_fields import FIELDS, MARK, marked_fields
from tests.support import REPOSITORY, assert_refused, command

LSCPU = {
    "CPU(s):": "224",
    "Model name:": "Intel(R) Xeon(R) Platinum 8480C",
    "Thread(s) per core:": "2",
    "Core(s) per socket:": "56",
    "Socket(s):": "2",
    "CPU max MHz:": "3800.0000",
    "L1d cache:": "5.3 MiB (112 instances)",
    "L3 cache:": "210 MiB (2 instances)",
}
GPU = "NVIDIA H100 80GB HBM3, 81559, 1980, 560.35.03, 5, 16\n"
NVLINK = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n" + "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))
TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV18\tNV18\tPIX\t0-55\t0
GPU1\tNV18\t X \tNV18\tNODE\t0-55\t0
GPU2\tNV18\tNV18\t X \tSYS\t0-55\t0
NIC0\tPIX\tNODE\tSYS\t X
"""
MODULE = """
Memory Device
\tSize: 64 GB
\tType: DDR5
\tSpeed: 4800 MT/s
"""
ASKED_OF_A_PERSON = {"submitter", "division", "status", "system_name", "number_of_nodes", "cooling"}


def test_processors_of_a_server_whose_lscpu_nests_its_lines() -> None:
    lines = [{"field": field, "data": data} for field, data in LSCPU.items()]
    nested = {"lscpu": [lines[0], {"field": "Vendor ID:", "data": "GenuineIntel", "children": lines[1:]}]}
    assert hardware.processors(json.dumps(nested)) == {
        "host_processors_per_node": "2",
        "host_processor_model_name": "Intel(R) Xeon(R) Platinum 8480C",
        "host_processor_core_count": "56",
        "host_processor_vcpu_count": "112",
        "host_processor_frequency": "3.80 GHz at most",
        "host_processor_caches": "L1d 5.3 MiB (112 instances), L3 210 MiB (2 instances)",
    }


def test_memory_modules_where_root_reads_them_and_the_kernels_total_elsewhere() -> None:
    empty = "\nMemory Device\n\tSize: No Module Installed\n"
    assert hardware.memory("", MODULE * 32 + empty) == {
        "host_memory_capacity": "2048 GB",
        "host_memory_configuration": "32x 64 GB DDR5-4800",
    }
    assert hardware.memory("MemTotal:       24684092 kB\n", "") == {"host_memory_capacity": "23.5 GiB usable"}


def test_disks_without_those_that_are_none() -> None:
    disks = [
        {"name": "nvme0n1", "type": "disk", "size": 3840755982336, "rota": False, "tran": "nvme"},
        {"name": "nvme1n1", "type": "disk", "size": 3840755982336, "rota": False, "tran": "nvme"},
        {"name": "sda", "type": "disk", "size": "480103981056", "rota": "0", "tran": "sata"},
        {"name": "zram0", "type": "disk", "size": 8, "rota": False, "tran": None},
        {"name": "loop0", "type": "loop", "size": 8, "rota": False, "tran": None},
    ]
    assert hardware.storage(json.dumps({"blockdevices": disks})) == {
        "host_storage_type": "NVMe SSD + SSD",
        "host_storage_capacity": "2x 3.84 TB NVMe SSD + 1x 480 GB SSD",
    }


def test_network_adapters_of_sysfs(tmp_path: Path) -> None:
    for number in range(2):
        port = tmp_path / "infiniband" / f"mlx5_{number}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (port / "link_layer").write_text("InfiniBand\n")
        (port.parents[1] / "hca_type").write_text("MT4129\n")
        (port.parents[1] / "device" / "net" / f"ib{number}").mkdir(parents=True)
    for name, speed in (("ib0", "-1"), ("ib1", "-1"), ("eth0", "100000"), ("lo", "")):
        (tmp_path / "net" / name).mkdir(parents=True)
        (tmp_path / "net" / name / "speed").write_text(speed)
    for name in ("ib0", "ib1", "eth0"):
        (tmp_path / "net" / name / "device").mkdir()
    (tmp_path / "drivers" / "ice").mkdir(parents=True)
    (tmp_path / "net" / "eth0" / "device" / "driver").symlink_to(tmp_path / "drivers" / "ice")
    found = hardware.network(tmp_path)
    expected = "2x ConnectX-7 InfiniBand 400 Gb/sec (4X NDR), 1x Ethernet (ice) 100 Gb/s"
    assert found == {"host_networking": expected}


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


def test_description_of_this_machine_has_every_field_and_says_which_are_left(tmp_path: Path) -> None:
    output = tmp_path / "system.json"
    done = command("benchmark", "describe-system", "--output", output)
    assert done.returncode == 0, done.stderr
    description = json.loads(output.read_text())
    assert list(description) == [field.name for field in FIELDS]
    assert sorted(description) == sorted(REQUIRED)
    left = marked_fields(description)
    assert set(left) >= ASKED_OF_A_PERSON
    assert f"{33 - len(left)} of 33 fields read, {len(left)} left for you" in done.stdout
    for name in left:
        assert f"  {name} " in done.stdout
    cores = int(description["host_processor_vcpu_count"]) * int(description["host_processors_per_node"])
    assert cores >= len(os.sched_getaffinity(0))
    assert description["framework"].startswith("PyTorch ")
    again = command("benchmark", "describe-system", "--output", output)
    assert_refused(again, f"{output}: exists, perhaps filled in by hand; choose another --output or delete it")


def test_machine_with_gpus_and_without_other_programs(tmp_path: Path) -> None:
    """All of it as a user runs it: nvidia-smi answers, lscpu and lsblk are not there."""
    answers = {"--query-gpu*": GPU * 8, "nvlink": NVLINK, "topo": TOPOLOGY}
    cases = "".join(f"{pattern}) printf '%b' '{text}' ;;\n" for pattern, text in answers.items())
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n')
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "benchmark", "describe-system"],
        cwd=REPOSITORY,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    description = json.loads(done.stdout)
    assert description["accelerators_per_node"] == "8"
    assert description["other_software_stack"]["nvidia_driver"] == "560.35.03"
    assert description["host_processor_model_name"].startswith(MARK)
