"""Where ranks meet, and their places in the mesh."""

import datetime
import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import Collectives, System
from benchmark.config.systems import SYSTEMS
from benchmark.training.engine import distributed
from benchmark.training.engine.distributed import TIMES_START_LIMIT, build_mesh, joined_world, tensor_options
from benchmark.training.engine.rank_environment import Environment, read_environment
from benchmark.training.train import train
from foundation.child_processes import reserved_port
from foundation.errors import InputError
from model.sharding import AXES
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import Inputs, in_processes


def test_busy_port_is_one_line(inputs: Inputs, tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"localhost:{port} is in use; set MASTER_PORT"):
            in_processes(1, _train_on_port, inputs.config(tmp_path / "run", system=system_of(2)), port)


def _train_on_port(config: RunConfig, port: int) -> str:
    os.environ.update(WORLD_SIZE="2", MASTER_PORT=str(port))
    return train(config)


class _NcclOptions:
    """In the place of ProcessGroupNCCL.Options, which a CPU's PyTorch lacks."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream, self.config = is_high_priority_stream, SimpleNamespace(max_ctas=None)


@pytest.mark.parametrize(
    ("collectives", "tensor_parallel", "due"),
    [
        (Collectives(), 4, None),
        (Collectives(copy_engines="gathers"), 4, None),
        (Collectives(8, True), 1, None),
        (Collectives(nccl_ctas=8), 4, (8, False)),
        (Collectives(nccl_priority=True), 4, (None, True)),
        (Collectives(4, True), 4, (4, True)),
    ],
)
def test_communicators_of_tensor_parallel_ranks_have_options_of_their_own(
    collectives: Collectives, tensor_parallel: int, due: tuple[Any, bool] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    fake = SimpleNamespace(Options=_NcclOptions)
    monkeypatch.setattr(dist, "ProcessGroupNCCL", fake, raising=False)
    monkeypatch.setattr(distributed, "DeviceMesh", lambda *_, backend_override, **__: made.append(backend_override))
    system = replace(SYSTEMS["dgxh100_n64"], tensor_parallel=tensor_parallel, collectives=collectives)
    options = tensor_options(system)
    build_mesh(system, "cuda", options)
    if due is None:
        assert made == [None]
        return
    assert (options.config.max_ctas, options.is_high_priority_stream) == due
    assert dict(zip(AXES, made[0], strict=True)) == dict.fromkeys(AXES, (None, None)) | {"tensor": (None, options)}


def _look(system: System) -> dict[str, Any]:
    with joined_world(system, read_environment()) as world:
        world.barrier()
        return {
            "axes": {name: world.mesh[name].get_local_rank() for name in world.mesh.mesh_dim_names or ()},
            "data": (world.data_rank, world.data_parallel),
            "loss copies": world.loss_copies,
            "from rank 0": world.from_rank_0(world.rank + 40),
            "threads": torch.get_num_threads(),
            "memory": world.peak_memory_bytes() > 1e6,
            "timeouts": {
                world.mesh.get_group(axis)._get_backend(world.device).options._timeout
                for axis in world.mesh.mesh_dim_names or ()
            },
        }


@pytest.mark.slow
def test_each_process_knows_its_place() -> None:
    system = system_of(4, tensor_parallel=2, pipeline_parallel=2)
    results = in_processes(4, _look, system)
    assert [one["axes"]["pipeline"] for one in results] == [0, 0, 1, 1]
    assert [one["axes"]["tensor"] for one in results] == [0, 1, 0, 1]
    assert [one["data"] for one in results] == [(0, 1)] * 4
    assert {one["loss copies"] for one in results} == {2}
    assert {one["from rank 0"] for one in results} == {40}
    assert {one["threads"] for one in results} == {max(1, len(os.sched_getaffinity(0)) // 4)}
    assert all(one["memory"] for one in results)
    limit = datetime.timedelta(seconds=TIMES_START_LIMIT * system.start_limit_s)
    assert [one["timeouts"] for one in results] == [{limit}] * 4


def test_tensor_parallel_ranks_are_next_to_each_other_and_stages_farthest_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "DeviceMesh", lambda _, ranks, **__: ranks)
    ranks: Any = build_mesh(system_of(16, tensor_parallel=2, pipeline_parallel=2, replicas=2), "cpu")
    steps = (ranks[1, 0, 0, 0], ranks[0, 1, 0, 0], ranks[0, 0, 1, 0], ranks[0, 0, 0, 1])
    assert dict(zip(AXES, map(int, steps), strict=True)) == {"pipeline": 8, "replicate": 4, "tensor": 1, "shard": 2}


@pytest.mark.slow
def test_processes_that_do_not_come_are_waited_for_and_counted() -> None:
    expected = "not all 2 processes came to localhost:PORT within 3 s; see which"
    with reserved_port() as port, pytest.raises(RuntimeError, match=expected.replace("PORT", str(port))):
        in_processes(1, _come_alone, system_of(2), port)


def _come_alone(system: System, port: int) -> None:
    os.environ.update(WORLD_SIZE="2", MASTER_PORT=str(port))
    with joined_world(system, read_environment(), datetime.timedelta(seconds=3)):
        pass


def test_the_device_is_bound_to_the_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then PyTorch makes the groups of an axis of the mesh by one split; else hundreds of them one by one."""
    given: list[dict[str, Any]] = []

    def init(backend: str, **options: Any) -> None:
        given.append({"backend": backend, **options})
        raise dist.DistStoreError

    gpu = torch.device("cuda", 3)
    monkeypatch.setattr(distributed, "device_of", lambda *_: gpu)
    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(distributed, "meeting_point", lambda *_: None)
    system = System(name="eight", device="cuda", nodes=1, devices_per_node=8, micro_batch_size=1)
    with pytest.raises(InputError), joined_world(system, Environment(3, 8, 3)):
        pass
    assert (given[0]["backend"], given[0]["device_id"]) == ("cuda:nccl,cpu:gloo", gpu)
