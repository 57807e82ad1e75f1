"""The processes of a run: their environment, where they meet, their places in the mesh."""

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
from benchmark.training.engine.distributed import (
    TIMES_START_LIMIT,
    Environment,
    build_mesh,
    device_of,
    joined_world,
    leave_multiprocessors,
    pci_address,
    read_environment,
    tensor_options,
)
from benchmark.training.train import train
from foundation.child_processes import reserved_port
from foundation.errors import InputError
from model.sharding import AXES
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import Inputs, in_processes

OF_LAUNCHERS = (
    *("ATTEMPT", "LAUNCH_ID", "LAUNCHED_S", "SUBMITTED_S", "SLURM_JOB_ID", "SLURM_STEP_ID", "NODE_NAME"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "CUDA_VISIBLE_DEVICES"),
)


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


def test_damaged_environment_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes, complaint in (
        ({"RANK": "2", "WORLD_SIZE": "2"}, "expected 0 <= RANK < WORLD_SIZE"),
        ({"RANK": "first"}, "invalid literal"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "needs MASTER_ADDR and MASTER_PORT"),
    ):
        with monkeypatch.context() as patch:
            for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                patch.delenv(name, raising=False)
            for name, value in changes.items():
                patch.setenv(name, value)
            with pytest.raises(InputError, match=complaint):
                read_environment()


def test_environment_of_one_process_and_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", *OF_LAUNCHERS):
        monkeypatch.delenv(name, raising=False)
    assert read_environment() == Environment(0, 1, 0, "localhost:-", f"process-{os.getpid()}-0")
    names = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    given = {"ATTEMPT": "0007", "SLURM_JOB_ID": "12", "LAUNCHED_S": "1.5", "NODE_NAME": "n7"}
    for name, value in {**names, **given}.items():
        monkeypatch.setenv(name, value)
    assert read_environment() == Environment(5, 8, 1, "node0:29500", "0007", "12", "12", 1.5, host="n7")


def test_attempts_have_a_name_that_all_processes_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", *OF_LAUNCHERS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a/b")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert read_environment().attempt == "torchrun-a_b-2"
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert read_environment().launch == "12"
    with monkeypatch.context() as patch:
        patch.delenv("SLURM_JOB_ID")
        for run, launch in (("abc", "abc"), ("none", None)):  # none: torchrun was given no name
            patch.setenv("TORCHELASTIC_RUN_ID", run)
            assert read_environment().launch == launch
    monkeypatch.setenv("LAUNCH_ID", "mine")
    assert read_environment().launch == "mine"
    for name, value in (("ATTEMPT", "../0001"), ("SUBMITTED_S", "noon")):
        with monkeypatch.context() as patch, pytest.raises(InputError, match=f"{name}={value}"):
            patch.setenv(name, value)
            read_environment()


class _NcclOptions:
    """In the place of ProcessGroupNCCL.Options, which a CPU's PyTorch lacks."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream, self.config = is_high_priority_stream, SimpleNamespace(max_ctas=None)


@pytest.mark.parametrize(
    ("collectives", "tensor_parallel", "due"),
    [
        (Collectives(), 4, None),
        (Collectives(copy_engines="gathers", sm_carveout=8), 4, None),
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


def test_products_leave_multiprocessors_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", called.append)
    monkeypatch.setattr(torch._C, "_set_sm_carveout_experimental", called.append)
    leave_multiprocessors(0)
    assert called == []
    leave_multiprocessors(8)
    assert called == ["cublaslt", 8]


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
    found = in_processes(4, _look, system)
    assert [one["axes"]["pipeline"] for one in found] == [0, 0, 1, 1]
    assert [one["axes"]["tensor"] for one in found] == [0, 1, 0, 1]
    assert [one["data"] for one in found] == [(0, 1)] * 4
    assert {one["loss copies"] for one in found} == {2}
    assert {one["from rank 0"] for one in found} == {40}
    assert {one["threads"] for one in found} == {max(1, len(os.sched_getaffinity(0)) // 4)}
    assert all(one["memory"] for one in found)
    limit = datetime.timedelta(seconds=TIMES_START_LIMIT * system.start_limit_s)
    assert [one["timeouts"] for one in found] == [{limit}] * 4


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


@pytest.mark.parametrize(
    ("visible", "count", "index"),
    [
        (None, 8, 3),
        ("0,1,2,3,4,5,6,7", 8, 3),
        ("5", 1, 0),  # as Slurm gives each process its own, whatever its number
        (None, 1, None),  # a machine with one GPU for eight processes
        ("0,1", 2, None),
    ],
)
def test_device_of_a_process(
    visible: str | None, count: int, index: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[torch.device] = []
    near: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    place = SimpleNamespace(pci_domain_id=1, pci_bus_id=0x1B, pci_device_id=2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: place)
    monkeypatch.setattr(distributed, "keep_near", lambda own, others: near.append((own, len(others))))
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True  # as it is by itself
    process = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for name, value in process.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    system = System(name="eight", device="cuda", nodes=1, devices_per_node=8, micro_batch_size=1)
    assert pci_address(torch.device("cuda", 0)) == "0001:1b:02.0"
    if index is None:
        with pytest.raises(InputError, match=f"needs 8 CUDA devices per machine; PyTorch sees {count} here"):
            device_of(system, read_environment())
        return
    assert device_of(system, read_environment()) == torch.device("cuda", index)
    assert chosen == [torch.device("cuda", index)]
    assert near == [("0001:1b:02.0", count)]
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction


def test_the_device_is_bound_to_the_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then PyTorch makes the groups of an axis of the mesh by one split; else hundreds of them one by one."""
    given: list[dict[str, Any]] = []

    def init(backend: str, **options: Any) -> None:
        given.append({"backend": backend, **options})
        raise dist.DistStoreError

    gpu = torch.device("cuda", 3)
    monkeypatch.setattr(distributed, "device_of", lambda *_: gpu)
    monkeypatch.setattr(dist, "init_process_group", init)
    system = System(name="eight", device="cuda", nodes=1, devices_per_node=8, micro_batch_size=1)
    with pytest.raises(InputError), joined_world(system, Environment(3, 8, 3)):
        pass
    assert (given[0]["backend"], given[0]["device_id"]) == ("cuda:nccl,cpu:gloo", gpu)
