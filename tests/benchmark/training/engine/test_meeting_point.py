"""The meeting point of the ranks listens where the ranks are, and nowhere else."""

import datetime
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from benchmark.training.engine import meeting_point as module
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.meeting_point import MeetingFailed, meeting_address, meeting_point
from benchmark.training.engine.rank_environment import Environment, read_environment
from benchmark.training.machine.process_setup import interface_address
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import in_processes

LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, ::1 and ::ffff:127.0.0.1, as /proc/net/tcp and tcp6 write them."""
LISTENING = "0A"
TIMEOUT = datetime.timedelta(seconds=20)


def outside_addresses() -> list[str]:
    """Return this machine's IPv4 addresses by which other machines reach it."""
    addresses = (interface_address(name) for _, name in socket.if_nameindex())
    return [address for address in addresses if address is not None and not address.startswith("127.")]


def listening_addresses() -> set[tuple[str, int]]:
    """Return the addresses and ports at which this process listens, in the kernel's hexadecimal words."""
    sockets = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[len("socket:[") : -1])
    rows = [row.split() for table in ("tcp", "tcp6") for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    places = (row[1].split(":") for row in rows if row[3] == LISTENING and row[9] in sockets)
    return {(address, int(port, 16)) for address, port in places}


def _look(master: str) -> dict[str, Any]:
    os.environ["MASTER_ADDR"] = master
    with joined_world(system_of(2), read_environment()) as world:
        world.barrier()
        port = int(os.environ["MASTER_PORT"])
        reached = []
        for address in ("127.0.0.1", *outside_addresses()):
            with socket.socket() as stranger:
                stranger.settimeout(5)
                if stranger.connect_ex((address, port)) == 0:
                    reached.append(address)
        keys = dist.TCPStore(reached[0], port, is_master=False, timeout=TIMEOUT).num_keys()
        seen = {"listening": listening_addresses(), "reached": reached, "keys": keys, "port": port}
        world.barrier()
        return seen


@pytest.mark.slow
def test_ranks_of_one_machine_listen_on_loopback_alone() -> None:
    """Both ranks look: at what they listen, and whether the store, which has keys, is reached from outside."""
    first, second = in_processes(2, _look, "localhost")
    for seen in (first, second):
        assert {address for address, _ in seen["listening"]} <= LOOPBACK
        assert seen["reached"] == ["127.0.0.1"] and seen["keys"] > 0
    assert ("0100007F", first["port"]) in first["listening"]


@pytest.mark.slow
@pytest.mark.skipif(not outside_addresses(), reason="this machine has no address but loopback")
def test_the_store_listens_at_the_address_that_is_named_alone() -> None:
    address = outside_addresses()[0]
    first, _ = in_processes(2, _look, address)
    assert first["reached"] == [address]
    of_store = [place for place, port in first["listening"] if port == first["port"]]
    assert of_store == [socket.inet_aton(address)[::-1].hex().upper()]


@pytest.mark.parametrize(
    ("master", "resolved", "nodes", "address"),
    [
        ("localhost", "127.0.0.1", 1, "127.0.0.1"),
        ("localhost", "127.0.0.1", 2, "127.0.0.1"),  # two nodes tried on one machine
        ("n1", "10.0.0.1", 2, "10.0.0.1"),
        ("n1", "127.0.1.1", 1, "127.0.1.1"),
        ("n1", "127.0.1.1", 2, "10.0.0.7"),  # of the interface that gloo takes
        ("n2", None, 2, "n2"),  # of another machine
    ],
)
def test_address(master: str, resolved: str | None, nodes: int, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bindable_address", lambda _: resolved)
    monkeypatch.setattr(module, "gloo_environment", lambda *_: {"GLOO_SOCKET_IFNAME": "eth7"})
    monkeypatch.setattr(module, "interface_address", {"eth7": "10.0.0.7"}.get)
    assert meeting_address(master, nodes) == address


def test_an_address_of_another_machine_is_refused_by_rank_0() -> None:
    with pytest.raises(MeetingFailed, match=r"rank 0: 192\.0\.2\.77:5 is no address of this machine .*MASTER_ADDR"):
        meeting_point(Environment(0, 2, 0, "192.0.2.77:5"), 2, TIMEOUT)


def test_under_torchrun_its_own_store_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[object] = []
    monkeypatch.setattr(dist, "TCPStore", lambda *place, **options: stores.append((place, options)))
    meeting_point(Environment(0, 2, 0, "n1:29500", agent_store=True), 2, TIMEOUT)
    assert stores == [(("n1", 29500, 2), {"is_master": False, "timeout": TIMEOUT, "master_listen_fd": None})]


def test_one_rank_meets_nobody() -> None:
    assert isinstance(meeting_point(Environment(0, 1, 0), 1, TIMEOUT), dist.HashStore)
