"""The meeting point of the ranks: PyTorch's TCPStore, which listens at one address of rank 0's machine and at no other.

Whoever reaches the store can read and set its keys: it asks for no password. So it listens on the loopback address
where MASTER_ADDR says that all ranks are on one machine, and otherwise at the address that MASTER_ADDR names. Under
torchrun the store is torchrun's own, which listens on all interfaces.
"""

import datetime
import errno
import socket
from ipaddress import ip_address

import torch.distributed as dist

from benchmark.training.engine.rank_environment import Environment
from benchmark.training.machine.process_setup import (
    bindable_address,
    gloo_environment,
    interface_address,
    is_loopback_name,
)
from foundation.errors import InputError

BACKLOG = 4096
"""Connections that the kernel holds until the store accepts them; Linux bounds it by net.core.somaxconn."""


class MeetingFailed(InputError):
    """The ranks did not come together."""


def meeting_point(environment: Environment, nodes: int, timeout: datetime.timedelta) -> dist.Store:
    """Return the store of a run over ``nodes`` machines; rank 0 hosts it. ``timeout``: of each of its answers.

    Raises MeetingFailed if rank 0 cannot listen at MASTER_ADDR and MASTER_PORT, DistNetworkError or DistStoreError if
    another rank cannot reach it or ranks are missing.
    """
    if environment.world_size == 1:
        return dist.HashStore()
    master, _, port = environment.address.rpartition(":")
    hosts_it = environment.rank == 0 and not environment.agent_store
    address = master if environment.agent_store else meeting_address(master, nodes)
    listener = _listen(address, int(port), environment) if hosts_it else None
    return dist.TCPStore(
        address,
        int(port),
        environment.world_size,
        is_master=listener is not None,
        timeout=timeout,
        master_listen_fd=None if listener is None else listener.detach(),
    )


def meeting_address(master: str, nodes: int) -> str:
    """Return the address at which rank 0 listens, as this machine reaches it.

    Debian and Ubuntu give a machine's own name the address 127.0.1.1, which no other machine reaches: over several
    machines the store then listens at the address of the interface that gloo takes.
    """
    address = bindable_address(master)
    if address is None:  # rank 0 is on another machine
        return master
    if nodes > 1 and ip_address(address.partition("%")[0]).is_loopback and not is_loopback_name(master):
        interface = gloo_environment(nodes, master).get("GLOO_SOCKET_IFNAME")
        return (interface and interface_address(interface)) or address
    return address


def _listen(address: str, port: int, environment: Environment) -> socket.socket:
    """Return a socket that listens at ``address`` alone. Raises MeetingFailed if the kernel refuses it."""
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier attempt's connections may linger
        try:
            listener.bind(socket_address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener
    except OSError as error:
        reason = "in use" if error.errno == errno.EADDRINUSE else f"no address of this machine ({error.strerror})"
        raise MeetingFailed(meeting_failed(environment, reason)) from error


def meeting_failed(environment: Environment, reason: str) -> str:
    """Return the message of a meeting point that is ``reason``."""
    return (
        f"rank {environment.rank}: {environment.address} is {reason}; set MASTER_PORT to a free port of rank 0's "
        "machine and MASTER_ADDR to its name"
    )
