"""Processes that end with whoever started them, and the ports where they meet."""

import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from unittest import mock

import pytest

from foundation.child_processes import (
    begin_worker,
    end_with_parent,
    require_free_port,
    require_loopback,
    reserved_port,
    run_module,
)
from foundation.errors import InputError

FORK = multiprocessing.get_context("fork")


def _child(pids: Connection) -> None:
    end_with_parent()
    pids.send(os.getpid())
    time.sleep(600)


def _worker(pids: Connection) -> None:
    begin_worker()
    pids.send(os.getpid())
    time.sleep(600)


def _late_worker(pids: Connection) -> None:
    """Begins only when its parent is gone."""
    pids.send(os.getpid())
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.01)
    begin_worker()
    time.sleep(600)


def _parent(child: Callable[[Connection], None], pids: Connection) -> None:
    FORK.Process(target=child, args=(pids,)).start()
    time.sleep(600)


def _has_ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as status:  # noqa: PTH123
            return status.read().rpartition(")")[2].split()[0] == "Z"  # nobody may have asked for its status yet
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("started", [_child, _worker, _late_worker])
def test_a_child_ends_when_its_parent_is_killed(started: Callable[[Connection], None]) -> None:
    receiver, sender = FORK.Pipe(duplex=False)
    parent = FORK.Process(target=_parent, args=(started, sender))
    parent.start()
    child = receiver.recv()
    assert not _has_ended(child)
    assert parent.pid is not None
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    deadline = time.monotonic() + 60
    while not _has_ended(child):
        assert time.monotonic() < deadline, "it goes on without its parent"
        time.sleep(0.01)


def test_a_reserved_port_is_given_to_nobody_else_and_can_be_met_at() -> None:
    with reserved_port() as port:
        for host in ("", "127.0.0.1"):
            with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
                other.bind((host, port))  # as the kernel does for who asks for any port: without SO_REUSEADDR
        require_free_port(port)
        with socket.create_server(("", port)) as server, socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
            with pytest.raises(InputError, match=f"port {port}: Address already in use; choose another MASTER_PORT"):
                require_free_port(port)
    for number in (-1, 0, 65536):
        with pytest.raises(InputError, match=f"port {number}: expected 1 to 65535; choose another MASTER_PORT"):
            require_free_port(number)


def test_a_machine_whose_processes_cannot_meet_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_loopback()
    monkeypatch.setattr(socket, "create_connection", mock.Mock(side_effect=OSError(errno.ENETUNREACH, "unreachable")))
    with pytest.raises(InputError, match=r"localhost: unreachable, .* loopback interface up \(ip link set lo up\)"):
        require_loopback()


@pytest.mark.parametrize("ends_itself", [True, False])
def test_an_interrupt_is_told_by_the_child_alone(ends_itself: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def __init__(self, *_: object, **__: object) -> None:
            self.waits, self.terminated = 0, False

        def wait(self, timeout: float | None = None) -> int:
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            if not (ends_itself or self.terminated):
                raise subprocess.TimeoutExpired("", timeout or 0)
            return 130

        def terminate(self) -> None:
            self.terminated = True

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(SystemExit) as leaving:
        run_module(["data_prep"])
    assert leaving.value.code == 130
