"""What a system's sizes make of it, and which of them it refuses."""

import dataclasses
from typing import Any

import pytest

from benchmark.config.system_config import Collectives
from benchmark.config.systems import SYSTEMS
from stage.errors import InputError

DGX = dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1)


def test_devices_are_dealt_out() -> None:
    system = dataclasses.replace(DGX, pipeline_chunks=3)
    assert (system.num_devices, system.data_parallel, system.num_pipeline_stages) == (512, 16, 24)
    assert system.peak_tflops == 989.4
    assert SYSTEMS["cpu_p2"].peak_tflops is None


def test_without_a_pipeline_a_device_has_one_stage() -> None:
    assert dataclasses.replace(DGX, pipeline_parallel=1, pipeline_chunks=6).num_pipeline_stages == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"nodes": 0}, "nodes 0: expected at least 1; change --nodes"),
        ({"micro_batch_size": 0}, "change --micro-batch-size"),
        ({"accelerator": "H1000"}, "accelerator H1000: unknown; there are GB200, B300, B200, GH200"),
        ({"nodes": 1, "tensor_parallel": 3}, "products that do: 1, 2, 4, 8. Change"),
        ({"collectives": Collectives(copy_engines="all"), "tensor_parallel": 16}, "of one machine alone, and tensor_p"),
        (
            {"collectives": Collectives(8, nccl_priority=True, sm_carveout=4), "device": "cpu"},
            "--nccl-ctas 8 --nccl-priority --sm-carveout 4: system dgxh100_n64 has no GPU; leave it out",
        ),
        ({"replicas": 5}, "replicas 5 do not divide 16 data-parallel devices; possible: 1, 2, 4, 8, 16"),
    ],
)
def test_systems_that_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        dataclasses.replace(DGX, **change)


@pytest.mark.parametrize("change", [{"nccl_ctas": 0}, {"sm_carveout": -1}])
def test_collectives_that_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected at least"):
        Collectives(**change)
