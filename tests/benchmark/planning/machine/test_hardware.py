"""What programs and files of a Linux machine say of it, by made-up answers, and of this one."""

import json
import os
from pathlib import Path

from benchmark.planning.machine import hardware

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


def test_disks_without_those_that_are_none() -> None:
    disks = [
        {"name": "nvme0n1", "type": "disk", "size": 3840755982336, "rota": False, "tran": "nvme"},
        {"name": "nvme1n1", "type": "disk", "size": 3840755982336, "rota": False, "tran": "nvme"},
        {"name": "sda", "type": "disk", "size": "480103981056", "rota": "0", "tran": "sata"},
        {"name": "vda", "type": "disk", "size": 10**12, "rota": True, "tran": None},
        {"name": "sdb", "type": "disk", "size": 4 * 10**12, "rota": "1", "tran": "sata"},
        {"name": "zram0", "type": "disk", "size": 8, "rota": False, "tran": None},
        {"name": "loop0", "type": "loop", "size": 8, "rota": False, "tran": None},
    ]
    assert hardware.storage(json.dumps({"blockdevices": disks})) == {
        "host_storage_type": "NVMe SSD + SSD + virtual disk + HDD",
        "host_storage_capacity": "2x 3.84 TB NVMe SSD + 1x 480 GB SSD + 1x 1 TB virtual disk + 1x 4 TB HDD",
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


def test_answers_that_are_missing_say_nothing(tmp_path: Path) -> None:
    assert hardware.processors("") == hardware.memory("") == hardware.storage("") == hardware.network(tmp_path) == {}
    assert hardware.memory("MemTotal:       24684092 kB\n") == {"host_memory_capacity": "23.5 GiB usable"}
    assert hardware.ask("no-such-program", "--help") == hardware.ask("false") == ""
    assert hardware.ask("sh", "-c", "echo $LC_ALL") == "C\n"  # programs are asked in English


def test_software_of_this_machine() -> None:
    fields, stack = hardware.software()
    assert fields["framework"].startswith("PyTorch ")
    assert stack["kernel_version"] == f"Linux {os.uname().release}"
    assert {"python_version", "numpy_version", "sentencepiece_version", "mlperf-logging_version"} <= set(stack)
