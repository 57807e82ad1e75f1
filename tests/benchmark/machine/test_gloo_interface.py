"""The interface over which gloo meets, by what the machine's name stands for and where rank 0 is."""

import socket
from typing import Any

import pytest

from benchmark.machine import gloo_interface
from benchmark.machine.gloo_interface import gloo_environment

ADDRESSES = {"lo": "127.0.0.1", "eth0": "10.0.0.2", "ib0": "192.168.7.2"}
OF_LOOPBACK, OF_ETH0, OF_IB0 = "127.0.1.1", "10.0.0.2", "192.168.7.2"


@pytest.mark.parametrize(
    ("nodes", "own_name", "towards_master", "chosen"),
    [
        (1, "127.0.1.1", OF_LOOPBACK, None),
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
    _machine(monkeypatch, own_name, towards_master)
    assert gloo_environment(nodes, "node1") == ({"GLOO_SOCKET_IFNAME": chosen} if chosen else {})


def test_an_interface_that_is_not_there_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _machine(monkeypatch, None, OF_LOOPBACK)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "eth0")])
    assert gloo_environment(1, "node1") == {}


def test_addresses_are_those_of_the_system() -> None:
    assert gloo_interface._ipv4_of("lo") in (None, "127.0.0.1")
    assert gloo_interface._ipv4_of("no such interface") is None


def _machine(patch: pytest.MonkeyPatch, own_name: str | None, towards_master: str | None) -> None:
    patch.setattr(gloo_interface, "address_of_this_machine", lambda: own_name)
    patch.setattr(gloo_interface, "_ipv4_of", ADDRESSES.get)
    patch.setattr(socket, "if_nameindex", lambda: list(enumerate(ADDRESSES)))

    class Asked(socket.socket):
        def connect(self, address: Any) -> None:
            if towards_master is None:
                raise OSError("Network is unreachable")

        def getsockname(self) -> Any:
            return towards_master, 9

    patch.setattr(socket, "socket", Asked)
