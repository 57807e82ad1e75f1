"""The variables that a run sets for NCCL, CUDA and PyTorch."""

import dataclasses
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.runtime_variables import ONE_QUEUE, runtime_environment
from benchmark.config.system_config import Collectives
from benchmark.config.systems import SYSTEMS
from tests.benchmark.tiny import Inputs, in_processes
from tests.support import REPOSITORY


def _environment(name: str, *, deterministic: bool = False, **changes: Any) -> dict[str, str]:
    """Of a run on the system ``name``, with ``changes`` of its fields."""
    system = dataclasses.replace(SYSTEMS[name], **changes)
    return runtime_environment(system, deterministic=deterministic)


def test_a_cpu_needs_none() -> None:
    assert _environment("cpu_p2", deterministic=True) == {}


@pytest.mark.slow
def test_threads_on_cpus_sleep_while_they_wait(inputs: Inputs, tmp_path: Path) -> None:
    """OpenMP prints its variables when PyTorch loads it: after the first checks, and before the checkpoint is read."""
    words = [
        sys.executable,
        "-m",
        "benchmark",
        "evaluate",
        "rehearsal",
        "--system",
        "cpu_p1",
        "--checkpoint",
        str(tmp_path),
    ]
    for suffix in (".bin", ".idx"):  # without the manifest, which names another vocabulary
        shutil.copy(f"{inputs.validation[-1]}{suffix}", tmp_path / f"valid{suffix}")
    words += ["--valid-data-path", "1.00", str(tmp_path / "valid")]
    environment = {name: text for name, text in os.environ.items() if name != "OMP_WAIT_POLICY"}
    process = subprocess.run(
        words,
        cwd=REPOSITORY,
        env={**environment, "OMP_DISPLAY_ENV": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in process.stderr


@pytest.mark.parametrize(
    ("system", "tensor_parallel", "queues"),
    [("dgxh100_n64", 4, "1"), ("dgxa100_n64", 8, "1"), ("h200_n8", 1, None), ("b200_n8", 4, None)],
)
def test_one_queue_for_tensor_parallelism_before_blackwell(
    system: str, tensor_parallel: int, queues: str | None
) -> None:
    found = _environment(system, tensor_parallel=tensor_parallel)
    assert found.get("CUDA_DEVICE_MAX_CONNECTIONS") == queues
    assert found["TORCH_GLOO_LAZY_INIT"] == "1"
    copied = _environment(system, tensor_parallel=tensor_parallel, collectives=Collectives(copy_engines="gathers"))
    assert copied.get("CUDA_DEVICE_MAX_CONNECTIONS") == (None if tensor_parallel == 1 else "8")


def test_an_accelerator_nobody_knows_is_left_alone() -> None:
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in _environment("dgxh100_n64", accelerator="")
    assert set(ONE_QUEUE) < set(ACCELERATORS)


@pytest.mark.parametrize(
    ("changes", "variable", "value"),
    [
        ({}, "NCCL_P2P_NET_CHUNKSIZE", "2097152"),
        ({"nodes": 1, "pipeline_parallel": 2}, "NCCL_P2P_NET_CHUNKSIZE", None),
        ({"pipeline_parallel": 1, "pipeline_chunks": 1}, "NCCL_P2P_NET_CHUNKSIZE", None),
        ({}, "NCCL_NVLS_ENABLE", None),
        ({"collectives": Collectives(nccl_nvls=False)}, "NCCL_NVLS_ENABLE", "0"),
        ({}, "NCCL_LAUNCH_ORDER_IMPLICIT", None),
        ({"collectives": Collectives(nccl_launch_order=True)}, "NCCL_LAUNCH_ORDER_IMPLICIT", "1"),
    ],
)
def test_variables_of_messages(changes: dict[str, Any], variable: str, value: str | None) -> None:
    assert _environment("dgxh100_n64", **changes).get(variable) == value


def test_what_makes_sums_repeat_is_set_on_demand() -> None:
    plain, fixed = _environment("dgxh100_n64"), _environment("dgxh100_n64", deterministic=True)
    assert {name: fixed[name] for name in fixed if name not in plain} == {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "Simple",
    }


def _sums_of_two_groups() -> list[float]:
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    dist.init_process_group("gloo")
    groups = [dist.new_group(), dist.new_group()]  # the checkpoint's thread has a group of its own
    sums = [torch.full((100,), 1.0 + number + dist.get_rank()) for number in range(2)]
    threads = [
        threading.Thread(target=lambda n=number: [dist.all_reduce(sums[n], group=groups[n]) for _ in range(20)])
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [float(one.sum()) for one in sums]


@pytest.mark.slow
def test_gloo_sums_the_same_where_it_connects_late() -> None:
    expected = [3.0 * 2**19 * 100, 5.0 * 2**19 * 100]
    assert in_processes(2, _sums_of_two_groups) == [expected, expected]
