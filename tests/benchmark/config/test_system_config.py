"""A system: what its sizes make of it, which of them it refuses, the accelerators' names, and files of a user's own."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.accelerators import ACCELERATORS, accelerator_called, accelerator_named
from benchmark.config.system_config import Collectives, System, read_system, system_text
from benchmark.config.systems import SYSTEMS, system_called
from benchmark.planning.machine.describe_system import describe_system
from foundation.errors import InputError
from tests.benchmark.config.test_run_options import parsed

DGX = dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1)
FILE = """nodes = 4
devices_per_node = 8
accelerator = "h200"
tensor_parallel = 4
pipeline_parallel = 8
recompute = "full"
"""


def test_devices_are_dealt_out() -> None:
    system = dataclasses.replace(DGX, pipeline_chunks=3)
    assert (system.num_devices, system.data_parallel, system.num_pipeline_stages) == (512, 16, 24)
    assert dataclasses.replace(system, pipeline_parallel=1).num_pipeline_stages == 1
    assert (system.peak_tflops, SYSTEMS["cpu_p2"].peak_tflops) == (989.4, None)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"nodes": 0}, "nodes 0: expected at least 1; change --nodes"),
        ({"micro_batch_size": 0}, "change --micro-batch-size"),
        ({"accelerator": "H1000"}, "accelerator H1000: unknown; there are GB300, GB200, B300, B200, GH200"),
        ({"nodes": 1, "tensor_parallel": 3}, "products that do: 1, 2, 4, 8. Change"),
        ({"collectives": Collectives(copy_engines="all"), "tensor_parallel": 16}, "of one machine alone, and tensor_p"),
        (
            {"collectives": Collectives(8, nccl_priority=True), "device": "cpu"},
            "--nccl-ctas 8 --nccl-priority: system dgxh100_n64 has no GPU; leave it out",
        ),
        ({"replicas": 5}, "replicas 5 do not divide 16 data-parallel devices; possible: 1, 2, 4, 8, 16"),
    ],
)
def test_systems_that_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        dataclasses.replace(DGX, **change)


DEVICES = {
    "NVIDIA H100-SXM5-80GB": "H100 SXM",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA GB200": "GB200",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None,
    "NVIDIA A100-SXM4-80GB": "A100-80GB",
    "NVIDIA A100-SXM4-40GB": "A100",
    "NVIDIA Blackwell GPU": "B200",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": None,
    "NVIDIA B300-SXM-288GB (Blackwell Ultra)": "B300",
    "Intel(R) Gaudi(R) 2 AI Accelerator": "Gaudi 2",
    "TPU-v5p": "TPU v5p",
    "tpu-trillium": "Trillium",
    "Intel Xeon": None,
    "": None,
}
CALLED = {
    "H100": "H100 SXM",
    "h100": "H100 SXM",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "gb200": "GB200",
    "a100 80gb": "A100-80GB",
    "a100": "A100",
    "tpu v5P": "TPU v5p",
    "TRILLIUM": "Trillium",
}


def test_accelerators_by_the_names_of_descriptions_and_of_users() -> None:
    assert {model: accelerator_named(model) for model in DEVICES} == DEVICES
    assert {text: accelerator_called(text) for text in CALLED} == CALLED
    for name in ACCELERATORS:
        assert accelerator_called(name) == accelerator_named(name) == name
    for text in ("H1000", "V100", " ", "100", "H100 MIG 1g.10gb"):
        with pytest.raises(InputError, match=f"^accelerator {text}: unknown; there are GB300, GB200, B300, B200"):
            accelerator_called(text)


def test_a_file_is_a_system(tmp_path: Path) -> None:
    path = tmp_path / "my_cluster.toml"
    path.write_text(FILE)
    made = System("my_cluster", "cuda", 4, 8, 1, 4, 8, recompute="full", accelerator="H200")
    assert system_called(str(path), "gpt3_175b") == made
    assert parsed("gpt3_175b", "--system", str(path), "--micro-batch-size", "2").system.micro_batch_size == 2
    with pytest.raises(InputError, match=r"none\.toml: No such file"):
        system_called(str(tmp_path / "none.toml"), "gpt3_175b")
    described = tmp_path / "here.toml"
    assert describe_system(described) == f"{described}: for --system; add nodes and the layout"
    assert read_system(described).nodes == 1


def test_a_system_is_written_as_it_is_read(tmp_path: Path) -> None:
    for system in SYSTEMS.values():
        for collectives in (Collectives(), Collectives(8, True, "all")):
            chosen = collectives if system.device == "cuda" else Collectives()
            written = dataclasses.replace(system, collectives=chosen)
            path = tmp_path / f"{system.name}.toml"
            path.write_text(system_text(written))
            assert read_system(path) == written


def test_collectives_are_options_too() -> None:
    words = "--nccl-ctas 1 --nccl-priority --copy-engines gathers --no-nccl-nvls --nccl-launch-order"
    chosen = parsed("gpt3_175b", *words.split()).system.collectives
    assert (chosen, chosen.words) == (Collectives(1, True, "gathers", nccl_nvls=False, nccl_launch_order=True), words)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("nodes = 4", "nodes = ", "my_cluster.toml: Invalid value"),
        ("nodes = 4", "", "missing required field `nodes`"),
        ("nodes = 4", 'nodes = "4"', r"Expected `int`, got `str` - at `\$.nodes`"),
        ("nodes = 4", "nodes = 3", "my_cluster.toml: tensor_parallel 4 x pipeline_parallel 8 do not divide 24 devices"),
        ("nodes", "machines", "machines: no field of a system"),
        ("h200", "Z80", "my_cluster.toml: accelerator Z80: unknown"),
        ('"full"', '"some"', "Invalid enum value 'some'"),
        ('"full"', '"full"\n[collectives]\nnccl_cta = 8', "nccl_cta: no field of a system"),
        ('"full"', '"full"\n[collectives]\nnccl_ctas = 0', "nccl_ctas 0: expected at least 1; change --nccl-ctas"),
        ('"full"', '"full"\n[collectives]\nsm_carveout = 8', "sm_carveout: no field of a system"),
        ('"full"', '"full"\ncollectives = 8', r"Expected `object`, got `int` - at `\$.collectives`"),
    ],
)
def test_what_is_no_system(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "my_cluster.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(InputError, match=complaint):
        read_system(path)
