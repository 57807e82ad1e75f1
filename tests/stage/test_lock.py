"""One process at a time in a folder."""

import dataclasses
import errno
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

import stage.lock
from stage.claims import claim_file
from stage.claims.process_identity import this_process
from stage.errors import InputError
from stage.lock import only_one_in, owner_path
from tests.forked import fork_server


def _hold(
    folder: Path, ready: "multiprocessing.synchronize.Event", release: "multiprocessing.synchronize.Event"
) -> None:
    with only_one_in(folder, "wait"):
        ready.set()
        release.wait(30)


def test_only_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, release))
    holder.start()
    assert ready.wait(30)
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 0.3)
    with (
        pytest.raises(InputError, match=rf"in use by another process \(process {holder.pid} on .*\); choose another"),
        only_one_in(tmp_path, "choose another folder"),
    ):
        pass
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 30.0)
    release.set()
    with only_one_in(tmp_path, "choose another folder") as claim:  # waits for the other one to end
        holder.join()
        claim.require_held()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def _hold_and_die(folder: Path) -> None:
    with only_one_in(folder, "wait"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_one_that_was_killed_is_followed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = fork_server().Process(target=_hold_and_die, args=(tmp_path,))
    process.start()
    process.join(60)
    assert owner_path(tmp_path).exists()
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 0.0)
    with only_one_in(tmp_path, "wait"):
        pass


def test_an_owner_that_the_lock_does_not_reach_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, where locks are each machine's own."""
    elsewhere = dataclasses.replace(this_process(), host="elsewhere")
    fields = {"beat": "0" * 12, "token": "theirs", "owner": asdict(elsewhere)}
    owner_path(tmp_path).write_text(json.dumps(fields))
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 0.5)
    with pytest.raises(InputError, match="on elsewhere"), only_one_in(tmp_path, "wait"):
        pass
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 60.0)  # it takes STALE_S, however busy the machine
    monkeypatch.setattr(claim_file, "STALE_S", 0.2)
    monkeypatch.setattr(claim_file, "SETTLE_S", 0.0)
    with only_one_in(tmp_path, "wait"):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_without_locks_the_claim_does(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 0.3)
    inside: list[float] = []

    def other() -> None:
        with pytest.raises(InputError, match="in use"), only_one_in(tmp_path, "wait"):
            inside.append(time.monotonic())

    with only_one_in(tmp_path, "wait"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert inside == []
    with only_one_in(tmp_path, "wait"):
        pass


def test_a_disk_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match=r"Input/output error: .*/lock"), only_one_in(tmp_path, "wait"):
        pass


@pytest.mark.parametrize("removed", ["the lock file", "the folder", "the folder, which is made again"])
def test_a_lock_that_was_removed_keeps_nobody_out(
    removed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had it ends its work, and takes the lock away, while another one waits."""
    folder = tmp_path / "parts"
    folder.mkdir()
    holder = only_one_in(folder, "wait")
    holder.__enter__()

    def ends(_: float) -> None:
        monkeypatch.setattr(time, "sleep", lambda _: None)
        holder.__exit__(None, None, None)
        if removed == "the lock file":
            (folder / "lock").unlink()
        else:
            shutil.rmtree(folder)
        if removed.endswith("again"):
            folder.mkdir()

    monkeypatch.setattr(time, "sleep", ends)
    waiting = only_one_in(folder, "wait")
    if removed == "the folder":
        with pytest.raises(InputError, match=r"parts: gone meanwhile, .*; run the command again"), waiting:
            pass
    else:
        with waiting as claim, (folder / "lock").open("w") as same:
            claim.require_held()
            with pytest.raises(BlockingIOError):
                fcntl.flock(same, fcntl.LOCK_EX | fcntl.LOCK_NB)
