"""Binding a process to the cores near its GPU."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmark.machine.near_cores import keep_near

ADDRESS = "0000:1b:00.0"


def _machine(
    folder: Path, near: Mapping[str, str | None], threads_of_core: int = 1, cores: int = 0
) -> tuple[Path, Path]:
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
    devices, cores = _machine(tmp_path, {ADDRESS: near})
    set_to: list[frozenset[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: set_to.append(cores))
    keep_near(ADDRESS, devices=devices, cores=cores)
    assert set(set_to) == (set() if bound is None else {frozenset(bound)})


def test_gpus_of_one_node_deal_its_cores_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sockets of 16 cores with two threads each, four GPUs on each, as a DGX has them."""
    gpus = [f"0000:{number}b:00.0" for number in range(8)]
    lists = dict.fromkeys(gpus[:4], "0-15,32-47") | dict.fromkeys(gpus[4:], "16-31,48-63")
    devices, cores = _machine(tmp_path, lists, threads_of_core=2, cores=32)
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
    devices, cores = _machine(tmp_path, dict.fromkeys(gpus, "0-7"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})  # as srun --cpu-bind=cores does
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: None)
    assert keep_near(gpus[1], gpus, devices=devices, cores=cores) == {0, 1, 2, 3}


def test_threads_that_run_already_are_bound_too(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    devices, cores = _machine(tmp_path, {ADDRESS: str(min(allowed))})
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
