"""Processes told apart, and whether they have ended."""

import dataclasses
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from stage.claims import process_identity
from stage.claims.process_identity import ProcessIdentity, identity_from, is_running, next_own_name, this_process


def test_this_process_runs_and_its_child_has_ended() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert me.has_ended() is False
    assert identity_from(asdict(me)) == me
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert dataclasses.replace(me, pid=child.pid).has_ended() is True
    assert dataclasses.replace(me, started=me.started + 1).has_ended() is True  # the number was given again


@pytest.mark.parametrize("field", ["host", "boot", "pid_namespace"])
def test_of_other_machines_and_containers_nothing_is_known(field: str) -> None:
    assert dataclasses.replace(this_process(), **{field: "another"}).has_ended() is None  # type: ignore[arg-type]


def test_a_child_that_nobody_waited_for_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    me = this_process()
    try:
        running = ProcessIdentity(me.host, me.boot, me.pid_namespace, child.pid, 0)
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert running.has_ended() is True
        assert not is_running(child.pid)
    finally:
        child.wait()
    assert not is_running(child.pid)
    assert is_running(me.pid)


def test_whom_proc_does_not_show_has_perhaps_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's process where /proc is mounted with hidepid."""
    me = this_process()

    def hidden(pid: int) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(process_identity, "_stat", hidden)
    assert is_running(me.pid)
    assert me.has_ended() is None


@pytest.mark.parametrize("fields", [{}, {"host": "a"}, [], None, {**asdict(this_process()), "pid": "7"}])
def test_anything_else_is_no_identity(fields: object) -> None:
    with pytest.raises(ValueError):
        identity_from(fields)


def test_no_name_comes_twice() -> None:
    assert len({next_own_name() for _ in range(100)}) == 100
    assert str(os.getpid()) in next_own_name()
