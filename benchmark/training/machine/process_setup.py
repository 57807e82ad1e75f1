"""Set up a process on its machine before it joins a run: cores near its GPU, open files, the interface for gloo.

Cores: copies and messages take the shortest way from those of the GPU's NUMA node. Memory needs no binding of its own:
Linux takes it from the node of the core that first writes to it, so that memory allocated afterwards, pinned memory
too, is near the GPU. If that node is full, the other nodes still have memory, which a strict binding (numactl
--membind) would refuse.

Open files, sockets included, were counted with 2 to 16 processes under gloo (PyTorch 2.13). A process holds a socket to
every other process of the whole group and of its group along each axis of the mesh, whatever carries the gradients.
Rank 0, where all meet, holds one more for each process. NCCL adds files for the links of a group, and the driver adds
files for each device.

    processes              512      2,048
    own, driver, NCCL      832        832
    to the others          536      2,120
    on rank 0            1,024      4,096    two for each process: PyTorch's watchdog of NCCL opens another one
    all                  2,392      7,048

Gloo, which carries the host's small messages, by default takes the address of the machine's name. Debian and Ubuntu
give that name the address 127.0.1.1, which no other machine reaches.
"""

import fcntl
import os
import resource
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

PCI_DEVICES = Path("/sys/bus/pci/devices")
CORES = Path("/sys/devices/system/cpu")
THREADS = Path("/proc/self/task")
OWN = 256
"""Files of the interpreter, logs, token files, checkpoint files being written; 45 were counted before the first
step."""
WITH_DEVICE = 256
"""Files of the driver, for each GPU of the machine that a process sees."""
NCCL_PER_GROUP = 64
"""Sockets and event files of a group's links; NCCL needs more if it has nothing but sockets (NCCL_NSOCKS_PERTHREAD)."""
STORE_PER_PROCESS = 2
MOST_RAISED = 1 << 20
"""Highest limit that is set: beyond it, programs that close all possible files take long."""
LOOPBACK = "lo"
"""The interface by which processes of one machine talk, on Linux."""
SIOCGIFADDR = 0x8915
"""Number of Linux's request for the IPv4 address of an interface."""


def keep_near(
    pci_address: str, all_gpus: Sequence[str] = (), *, devices: Path = PCI_DEVICES, cores: Path = CORES
) -> frozenset[int]:
    """Bind this process, all its threads and all later child processes to cores near a PCI device; return these cores.

    The device's ``pci_address`` is such as "0000:1b:00.0". Each of the machine's GPUs, ``all_gpus``, has a process like
    this one: processes on the same NUMA node divide its cores, so that their threads do not disturb each other. Only
    cores that the process may use are taken; if it may not use all near ones, the cores count as divided already. If
    the kernel knows of no near cores, nothing is changed and the result is empty.
    """
    with suppress(OSError, ValueError):
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
    share = physical[first:end] if len(physical) >= count else physical
    return frozenset(logical for core in share for logical in core)


def cores_of(cpulist: str) -> frozenset[int]:
    """Return the cores in the kernel's notation "0-3,8,10-11". Raises ValueError for anything else."""
    cores: set[int] = set()
    for part in filter(None, cpulist.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


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
        with suppress(OSError):  # one that has just ended
            os.sched_setaffinity(int(thread.name), near)


def files_needed(group_sizes: Sequence[int], *, gpus: bool) -> int:
    """Return the files of rank 0, which has most; ``group_sizes`` are the processes along each axis of the mesh."""
    world = 1
    for size in group_sizes:
        world *= size
    sockets = (world - 1) + sum(size - 1 for size in group_sizes)
    groups = 1 + len(group_sizes)
    return OWN + sockets + STORE_PER_PROCESS * world + (WITH_DEVICE + NCCL_PER_GROUP * groups if gpus else 0)


def raise_file_limit() -> None:
    """Raise the soft limit of this process, and of its later children, to the hard limit if that is granted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST_RAISED if hard == resource.RLIM_INFINITY else min(hard, MOST_RAISED)
    if soft != resource.RLIM_INFINITY and soft < target:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def gloo_environment(nodes: int, master: str) -> dict[str, str]:
    """Return the variables that a process sets for gloo before it joins a run over ``nodes`` machines, whose rank 0
    listens at ``master``, a name or address. Gloo listens on the loopback interface alone where all processes are on
    this machine. Return none if gloo chooses well by itself, or if nothing better is found."""
    address, chosen = address_of_this_machine(), None
    if nodes == 1 or is_loopback_name(master):
        chosen = LOOPBACK
    elif address is None or ip_address(address).is_loopback:
        chosen = _interface_towards(master)
    return {"GLOO_SOCKET_IFNAME": chosen} if chosen in [name for _, name in socket.if_nameindex()] else {}


def address_of_this_machine() -> str | None:
    """Return the address of this machine's name, as gloo takes it; None if there is none."""
    return bindable_address(socket.gethostname())


def bindable_address(name: str) -> str | None:
    """Return the first address of ``name`` to which a socket can be bound on this machine; None if there is none."""
    try:
        addresses = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, _, _, where in addresses:
        with socket.socket(family, kind) as probe, suppress(OSError):
            probe.bind(where)
            return str(where[0])
    return None


def is_loopback_name(name: str) -> bool:
    """Return whether ``name`` means this machine on every machine: "localhost", or a loopback address in numbers."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.partition(".")[0] in ("localhost", "ip6-localhost")


def _interface_towards(master: str) -> str | None:
    """Return the interface from which this machine reaches ``master``. The name of rank 0's machine leads to itself;
    there, return the first interface with an address that others can reach."""
    addresses = {name: address for _, name in socket.if_nameindex() if (address := interface_address(name)) is not None}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((master, 9))  # nothing is sent: the kernel only looks up the route
            own_address = probe.getsockname()[0]
        except OSError:
            own_address = "127.0.0.1"
    interfaces = (
        name
        for name, address in addresses.items()
        if not ip_address(address).is_loopback and (address == own_address or ip_address(own_address).is_loopback)
    )
    return next(interfaces, None)


def interface_address(interface: str) -> str | None:
    """Return the IPv4 address of a network interface; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:  # the interface has none, or is down
            return None
    return socket.inet_ntoa(answer[20:24])
