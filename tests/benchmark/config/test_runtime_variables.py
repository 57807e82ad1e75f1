"""The variables that a run sets for NCCL, CUDA and PyTorch."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.run_config import RunConfig
from benchmark.config.runtime_variables import ONE_QUEUE, RUNTIME_VARIABLES, runtime_environment
from benchmark.config.system_config import Collectives
from benchmark.config.systems import SYSTEMS
from benchmark.training.train import train
from tests.benchmark.runs import figures, run, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes


def _environment(name: str, *, deterministic: bool = False, **changes: Any) -> dict[str, str]:
    """Of a run on the system ``name``, with ``changes`` of its fields."""
    system = dataclasses.replace(SYSTEMS[name], **changes)
    return runtime_environment(system, deterministic=deterministic)


def test_a_cpu_needs_none() -> None:
    assert _environment("cpu_p2", deterministic=True) == {}


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


def test_what_makes_sums_repeat_is_set_on_demand() -> None:
    plain, fixed = _environment("dgxh100_n64"), _environment("dgxh100_n64", deterministic=True)
    assert {name: fixed[name] for name in fixed if name not in plain} == {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "Simple",
    }


def test_every_variable_has_its_reason() -> None:
    assert len({(one.name, one.value) for one in RUNTIME_VARIABLES}) == len(RUNTIME_VARIABLES)
    for variable in RUNTIME_VARIABLES:
        assert re.fullmatch("[A-Z][A-Z_]+", variable.name)
        assert len(variable.reason) > 40


def _train_with_late_connections(config: RunConfig) -> str:
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    return train(config)


@pytest.mark.slow
def test_gloo_computes_the_same_where_it_connects_late(inputs: Inputs, tmp_path: Path) -> None:
    """Here, without a GPU, gloo also carries what NCCL does on one; the checkpoint's thread has a group of its own."""
    fields: dict[str, Any] = {"system": system_of(2), "benchmark": SHORT, "save_interval": 3}
    at_once = run(inputs, tmp_path / "at_once", **fields)
    late = inputs.config(tmp_path / "late", **fields)
    assert in_processes(2, _train_with_late_connections, late) == ["success"] * 2
    assert figures(tmp_path / "late") == at_once
