"""What a process sets up on its machine before it joins a run: cores near its GPU, open files, gloo's interface."""

import os
import resource
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmark.training.machine import process_setup
from benchmark.training.machine.process_setup import files_needed, gloo_environment, keep_near, raise_file_limit

ADDRESS = "0000:1b:00.0"
ADDRESSES = {"lo": "127.0.0.1", "eth0": "10.0.0.2", "ib0": "192.168.7.2"}
OF_LOOPBACK, OF_ETH0, OF_IB0 = "127.0.1.1", "10.0.0.2", "192.168.7.2"


def _cores(folder: Path, near: Mapping[str, str | None], threads_of_core: int = 1, cores: int = 0) -> tuple[Path, Path]:
    """Files as the kernel's, of PCI devices and of ``cores`` whose second threads are numbered behind all first."""
    for address, cpulist in near.items():
        (folder / "pci" / address).mkdir(parents=True)
        if cpulist is not None:
            (folder / "pci" / address / "local_cpulist").write_text(cpulist)
    for logical in range(cores * threads_of_core):
        topology = folder / "cpu" / f"cpu{logical}" / "topology"
        topology.mkdir(parents=True)
        siblings = ",".join(str(logical % cores + cores * number) for number in range(threads_of_core))
        (topology / "thread_siblings_list").write_text(siblings + "\n")
    return folder / "pci", folder / "cpu"


@pytest.mark.parametrize(
    ("near", "bound"),
    [("0-1", {1}), ("1-3", None), ("7", None), ("", None), ("damaged", None), (None, None)],
)
def test_only_near_cores_that_are_allowed(
    near: str | None, bound: set[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices, cores = _cores(tmp_path, {ADDRESS: near})
    set_to: list[frozenset[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: set_to.append(cores))
    keep_near(ADDRESS, devices=devices, cores=cores)
    assert set(set_to) == (set() if bound is None else {frozenset(bound)})


def test_gpus_of_one_node_deal_its_cores_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sockets of 16 cores with two threads each, four GPUs on each, as a DGX has them."""
    gpus = [f"0000:{number}b:00.0" for number in range(8)]
    lists = dict.fromkeys(gpus[:4], "0-15,32-47") | dict.fromkeys(gpus[4:], "16-31,48-63")
    devices, cores = _cores(tmp_path, lists, threads_of_core=2, cores=32)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: None)
    found = [keep_near(gpu, gpus, devices=devices, cores=cores) for gpu in gpus]
    assert found[0] == {0, 1, 2, 3, 32, 33, 34, 35}
    assert found[5] == {20, 21, 22, 23, 52, 53, 54, 55}
    assert sum(map(len, found)) == len(frozenset.union(*found)) == 64
    alone = keep_near(gpus[0], gpus[:1], devices=devices, cores=cores)  # a process that sees its own GPU only
    assert alone == {*range(16), *range(32, 48)}


def test_cores_that_were_dealt_out_before_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = ["0000:1b:00.0", "0000:2b:00.0"]
    devices, cores = _cores(tmp_path, dict.fromkeys(gpus, "0-7"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})  # as srun --cpu-bind=cores does
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: None)
    assert keep_near(gpus[1], gpus, devices=devices, cores=cores) == {0, 1, 2, 3}


def test_threads_that_run_already_are_bound_too(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    devices, cores = _cores(tmp_path, {ADDRESS: str(min(allowed))})
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert keep_near(ADDRESS, devices=devices, cores=cores) == {min(allowed)}
        assert thread.native_id is not None
        assert os.sched_getaffinity(thread.native_id) == os.sched_getaffinity(0) == {min(allowed)}
    finally:
        for running in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(running.name), allowed)
        stop.set()
        thread.join()


def test_formula_at_full_size() -> None:
    """The docstring's table: 8 stages, 4 tensor-parallel ranks, 16 or 64 data-parallel parts."""
    assert files_needed((8, 1, 16, 4), gpus=True) == 2392
    assert files_needed((8, 1, 64, 4), gpus=True) == 7048


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, resource.RLIM_INFINITY), (1 << 20, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_soft_limit_becomes_the_hard_one(
    before: tuple[int, int], after: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    raise_file_limit()
    assert set_to == ([] if after is None else [after])


@pytest.mark.parametrize(
    ("nodes", "own_name", "towards_master", "chosen"),
    [
        (1, "127.0.1.1", OF_LOOPBACK, "lo"),
        (1, None, OF_LOOPBACK, "lo"),
        (2, "10.0.0.2", OF_ETH0, None),
        (2, "127.0.1.1", OF_ETH0, "eth0"),
        (2, "127.0.1.1", OF_IB0, "ib0"),
        (2, "127.0.1.1", OF_LOOPBACK, "eth0"),  # rank 0's own machine, whose name leads to itself
        (2, "127.0.1.1", None, "eth0"),  # no route
        (2, None, OF_IB0, "ib0"),
    ],
)
def test_interface(
    monkeypatch: pytest.MonkeyPatch, nodes: int, own_name: str | None, towards_master: str | None, chosen: str | None
) -> None:
    _network(monkeypatch, own_name, towards_master)
    assert gloo_environment(nodes, "node1") == ({"GLOO_SOCKET_IFNAME": chosen} if chosen else {})


def test_an_interface_that_is_not_there_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _network(monkeypatch, None, OF_LOOPBACK)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "eth0")])
    assert gloo_environment(1, "node1") == {}


def test_addresses_are_those_of_the_system() -> None:
    assert process_setup.interface_address("lo") in (None, "127.0.0.1")
    assert process_setup.interface_address("no such interface") is None


def _network(patch: pytest.MonkeyPatch, own_name: str | None, towards_master: str | None) -> None:
    patch.setattr(process_setup, "address_of_this_machine", lambda: own_name)
    patch.setattr(process_setup, "interface_address", ADDRESSES.get)
    patch.setattr(socket, "if_nameindex", lambda: list(enumerate(ADDRESSES)))

    class Asked(socket.socket):
        def connect(self, address: Any) -> None:
            if towards_master is None:
                raise OSError("Network is unreachable")

        def getsockname(self) -> Any:
            return towards_master, 9

    patch.setattr(socket, "socket", Asked)
