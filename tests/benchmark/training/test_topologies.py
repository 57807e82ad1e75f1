"""Whole runs of six steps, of a tiny GPT-3 and a tiny Llama, in many topologies: the numbers do not depend on it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

from benchmark.config.run_config import Benchmark, RunConfig
from benchmark.config.system_config import System
from benchmark.training.engine.distributed import joined_world, read_environment
from tests.benchmark.llama import TINY_LLAMA
from tests.benchmark.runs import loaded_state, run, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes

TOPOLOGIES = {
    "micro-batches of one": system_of(1, micro_batch_size=1),
    "two devices": system_of(2),
    "two devices, recomputation": system_of(2, recompute="full"),
    "two replicas": system_of(2, replicas=2),
    "three devices, uneven shards": system_of(3),
    "two replicas of two shards": system_of(4, replicas=2, micro_batch_size=1),
    "selective recomputation": system_of(1, recompute="selective"),
    "tensor parallel": system_of(2, tensor_parallel=2, micro_batch_size=6),
    "tensor parallel, selective recomputation": system_of(
        2, tensor_parallel=2, micro_batch_size=6, recompute="selective"
    ),
    "tensor parallel on two shards": system_of(4, tensor_parallel=2, micro_batch_size=3),
    "pipeline": system_of(2, pipeline_parallel=2),
    "pipeline of three, uneven stages": system_of(3, pipeline_parallel=3),
    "interleaved pipeline": system_of(2, pipeline_parallel=2, pipeline_chunks=2),
    "pipeline on two replicas, recomputation": system_of(
        4, pipeline_parallel=2, replicas=2, micro_batch_size=1, recompute="full"
    ),
    "interleaved pipeline, tensor parallel": system_of(
        4, tensor_parallel=2, pipeline_parallel=2, pipeline_chunks=2, micro_batch_size=6
    ),
    "tensor, pipeline and two shards": system_of(8, tensor_parallel=2, pipeline_parallel=2, micro_batch_size=3),
}
BOTH = (
    "two devices, recomputation",
    "tensor parallel, selective recomputation",
    "pipeline",
    "interleaved pipeline, tensor parallel",
)
"""Those in which a Llama is tried, too: each way of cutting its passes once."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "name"),
    [*((SHORT, name) for name in TOPOLOGIES), *((TINY_LLAMA, name) for name in BOTH)],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
def test_topology_does_not_change_the_run(
    benchmark: Benchmark, name: str, inputs: Inputs, single: dict[str, list[list[float]]], tmp_path: Path
) -> None:
    found_figures = run(inputs, tmp_path / "run", TOPOLOGIES[name], benchmark=benchmark)
    for found, expected in zip(found_figures, single[benchmark.name], strict=True):
        assert found == pytest.approx(expected, rel=2e-6)


@pytest.fixture(scope="module")
def single(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[float]]]:
    """Figures of one device, by benchmark."""
    folder = tmp_path_factory.mktemp("single")
    return {one.name: run(inputs, folder / one.name, benchmark=one) for one in (SHORT, TINY_LLAMA)}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    assert isinstance(tensor, DTensor)
    return tensor.full_tensor()


def _weights(config: RunConfig) -> dict[str, "np.ndarray[Any, Any]"]:
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        return {name: whole(value).numpy() for name, value in state.tensors().items()}


@pytest.mark.slow
def test_every_topology_starts_from_the_same_weights(inputs: Inputs, tmp_path: Path) -> None:
    """Of a checkpoint in many chunks, as conversion writes it."""

    def config(system: System) -> RunConfig:
        return inputs.config(tmp_path, system=system).changed(checkpoint=inputs.checkpoint)

    expected = in_processes(1, _weights, config(system_of(1)))[0]
    assert len(expected) == 3 * 52
    for devices in (2, 3):
        found = in_processes(devices, _weights, config(system_of(devices)))
        assert all(np.array_equal(found[-1][name], value) for name, value in expected.items())
