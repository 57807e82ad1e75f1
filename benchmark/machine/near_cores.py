"""Which cores are near a GPU: those of its NUMA node, from which copies to it and messages take the short way."""

import contextlib
import os
from pathlib import Path

PCI_DEVICES = Path("/sys/bus/pci/devices")


def keep_near(pci_address: str, devices: Path = PCI_DEVICES) -> frozenset[int]:
    """Bind this process, and the threads and processes it starts from now on, to the cores near a PCI device; returns
    them.

    ``pci_address``: such as "0000:1b:00.0". Only cores the process may use anyway are taken; where the kernel knows of
    no near ones among them, nothing is changed and the set is empty.
    """
    with contextlib.suppress(OSError, ValueError):
        allowed = os.sched_getaffinity(0)
        near = cores_of((devices / pci_address / "local_cpulist").read_text()) & allowed
        if near and near != allowed:
            os.sched_setaffinity(0, near)
        return near
    return frozenset()


def cores_of(cpulist: str) -> frozenset[int]:
    """Of the kernel's "0-3,8,10-11". Raises ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, cpulist.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
