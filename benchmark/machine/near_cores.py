"""Keep a process on the cores near its GPU: those of the GPU's NUMA node, from which copies and messages take the
shortest way.

Memory needs no binding of its own: Linux takes it from the node of the core that first writes to it. So memory that a
process allocates after it is bound, pinned memory too, is near its GPU. If that node is full, the other nodes still
have memory, which a strict binding (numactl --membind) would refuse.
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
    """Bind this process, all its threads and all later child processes to cores near a PCI device; return these cores.

    The device's ``pci_address`` is such as "0000:1b:00.0". Each of the machine's GPUs, ``all_gpus``, has a process like
    this one: processes on the same NUMA node divide its cores, so that their threads do not disturb each other. Only
    cores that the process may use are taken; if it may not use all near ones, the cores count as divided already. If
    the kernel knows of no near cores, nothing is changed and the result is empty.
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
    """Return part ``number`` of ``count`` equal parts of the logical cores ``available``; neighbours, and the threads
    of a core, stay in one part. Return all cores if there are fewer cores than parts."""
    by_core: dict[frozenset[int], list[int]] = {}
    for logical in sorted(available):
        by_core.setdefault(_threads_of_core(logical, cores), []).append(logical)
    physical = list(by_core.values())
    first, end = number * len(physical) // count, (number + 1) * len(physical) // count
    own = physical[first:end] if len(physical) >= count else physical
    return frozenset(logical for core in own for logical in core)


def cores_of(cpulist: str) -> frozenset[int]:
    """Return the cores in the kernel's notation "0-3,8,10-11". Raises ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, cpulist.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _near(pci_address: str, devices: Path) -> frozenset[int]:
    return cores_of((devices / pci_address / "local_cpulist").read_text())


def _threads_of_core(logical: int, cores: Path) -> frozenset[int]:
    """Return the logical cores of the same core; this one alone if the kernel does not tell."""
    try:
        return cores_of((cores / f"cpu{logical}" / "topology" / "thread_siblings_list").read_text())
    except (OSError, ValueError):
        return frozenset({logical})


def _bind_all_threads(near: frozenset[int]) -> None:
    """Bind every thread of this process, since threads that already exist do not follow the calling one."""
    os.sched_setaffinity(0, near)
    for thread in THREADS.iterdir():
        with contextlib.suppress(OSError):  # one that has just ended
            os.sched_setaffinity(int(thread.name), near)
