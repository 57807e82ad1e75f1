"""Which cores are near a GPU: those of its NUMA node, from which copies to it and messages take the short way.

Memory needs no binding of its own: Linux takes it from the node of the core that first writes to it, so what a process
allocates once it keeps to its cores, pinned memory too, is near its GPU, and where that node is full there is still
memory on the others, which a strict binding (numactl --membind) would refuse.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

PCI_DEVICES = Path("/sys/bus/pci/devices")
CORES = Path("/sys/devices/system/cpu")
THREADS = Path("/proc/self/task")


def keep_near(
    pci_address: str, all_gpus: Sequence[str] = (), *, devices: Path = PCI_DEVICES, cores: Path = CORES
) -> frozenset[int]:
    """Bind this process, all its threads and what it starts from now on, to cores near a PCI device; returns them.

    ``pci_address``: such as "0000:1b:00.0". ``all_gpus``: of the machine, each of which has a process like this one:
    those on the same NUMA node deal its cores out among themselves, so that none is disturbed by what another's threads
    do. Only cores the process may use anyway are taken, and where it may not use all near ones, somebody has dealt
    them out already; where the kernel knows of no near ones, nothing is changed and the set is empty.
    """
    with contextlib.suppress(OSError, ValueError):
        allowed = os.sched_getaffinity(0)
        all_near = _near(pci_address, devices)
        near = all_near & allowed
        if near == all_near:
            sharers = sorted(gpu for gpu in {*all_gpus, pci_address} if _near(gpu, devices) == all_near)
            near = share_of_cores(near, sharers.index(pci_address), len(sharers), cores)
        if near and near != allowed:
            _bind_all_threads(near)
        return near
    return frozenset()


def share_of_cores(available: Iterable[int], number: int, count: int, cores: Path = CORES) -> frozenset[int]:
    """Part ``number`` of ``count`` equal parts of the logical cores ``available``, neighbours together; the threads of
    a core stay in one part. All of them where there are fewer cores than parts."""
    by_core: dict[frozenset[int], list[int]] = {}
    for logical in sorted(available):
        by_core.setdefault(_threads_of_core(logical, cores), []).append(logical)
    physical = list(by_core.values())
    first, end = number * len(physical) // count, (number + 1) * len(physical) // count
    own = physical[first:end] if len(physical) >= count else physical
    return frozenset(logical for core in own for logical in core)


def cores_of(cpulist: str) -> frozenset[int]:
    """Of the kernel's "0-3,8,10-11". Raises ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, cpulist.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _near(pci_address: str, devices: Path) -> frozenset[int]:
    return cores_of((devices / pci_address / "local_cpulist").read_text())


def _threads_of_core(logical: int, cores: Path) -> frozenset[int]:
    """The logical cores that are one; the core itself where the kernel does not tell."""
    try:
        return cores_of((cores / f"cpu{logical}" / "topology" / "thread_siblings_list").read_text())
    except (OSError, ValueError):
        return frozenset({logical})


def _bind_all_threads(near: frozenset[int]) -> None:
    """Threads that are there already do not follow the one that asks."""
    os.sched_setaffinity(0, near)
    for thread in THREADS.iterdir():
        with contextlib.suppress(OSError):  # one that has just ended
            os.sched_setaffinity(int(thread.name), near)
