"""Processes that end with whoever started them."""

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection

from stage.child_processes import end_with_parent

FORK = multiprocessing.get_context("fork")


def _child(pids: Connection) -> None:
    end_with_parent()
    pids.send(os.getpid())
    time.sleep(60)


def _parent(pids: Connection) -> None:
    FORK.Process(target=_child, args=(pids,)).start()
    time.sleep(60)


def _has_ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as status:  # noqa: PTH123
            return status.read().rpartition(")")[2].split()[0] == "Z"  # nobody may have asked for its status yet
    except FileNotFoundError:
        return True


def test_a_child_ends_when_its_parent_is_killed() -> None:
    receiver, sender = FORK.Pipe(duplex=False)
    parent = FORK.Process(target=_parent, args=(sender,))
    parent.start()
    child = receiver.recv()
    assert not _has_ended(child)
    assert parent.pid is not None
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    deadline = time.monotonic() + 10
    while not _has_ended(child):
        assert time.monotonic() < deadline, "it goes on without its parent"
        time.sleep(0.01)
