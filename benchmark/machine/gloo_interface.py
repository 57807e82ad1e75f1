"""Choose the network interface over which gloo, which carries the host's small messages, meets the other processes.

By default gloo takes the address of the machine's name. Debian and Ubuntu give that name the address 127.0.1.1, which
no other machine reaches.
"""

import fcntl
import socket
import struct
from contextlib import suppress
from ipaddress import ip_address

LOOPBACK = "lo"
"""The interface by which processes of one machine talk, on Linux."""
SIOCGIFADDR = 0x8915
"""Number of Linux's request for the IPv4 address of an interface."""


def gloo_environment(nodes: int, master: str) -> dict[str, str]:
    """Return the variables that a process sets for gloo before it joins a run over ``nodes`` machines, whose rank 0
    listens at ``master``, a name or address. Return none if gloo chooses well by itself, or if nothing better is
    found."""
    address = address_of_this_machine()
    if nodes == 1:
        chosen = LOOPBACK if address is None else None
    elif address is None or ip_address(address).is_loopback:
        chosen = _interface_towards(master)
    else:
        chosen = None
    return {"GLOO_SOCKET_IFNAME": chosen} if chosen in [name for _, name in socket.if_nameindex()] else {}


def address_of_this_machine() -> str | None:
    """Return the address of this machine's name, as gloo takes it: the first to which a socket can be bound here; None
    if there is none."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, _, _, where in found:
        with socket.socket(family, kind) as tried, suppress(OSError):
            tried.bind(where)
            return str(where[0])
    return None


def _interface_towards(master: str) -> str | None:
    """Return the interface from which this machine reaches ``master``. The name of rank 0's machine leads to itself;
    there, return the first interface with an address that others can reach."""
    addresses = {name: address for _, name in socket.if_nameindex() if (address := _ipv4_of(name)) is not None}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((master, 9))  # nothing is sent: the kernel only looks up the route
            own = asked.getsockname()[0]
        except OSError:
            own = "127.0.0.1"
    found = (
        name
        for name, address in addresses.items()
        if not ip_address(address).is_loopback and (address == own or ip_address(own).is_loopback)
    )
    return next(found, None)


def _ipv4_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:  # the interface has none, or is down
            return None
    return socket.inet_ntoa(answer[20:24])
