"""Claims between machines: one owner, taken over when it no longer beats, and an owner that finds out."""

import dataclasses
import json
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from stage.claims import claim_file
from stage.claims.claim_file import Claim, Watch, owner_of, try_claim
from stage.claims.process_identity import ProcessIdentity, this_process
from stage.errors import InputError


class Clock:
    """Stands still unless it is told how long something takes: a busy machine ages no claim."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(claim_file, "time", made)
    monkeypatch.setattr(claim_file, "BEAT_S", 0.01)  # of the beating thread, by the real clock
    return made


def unknown(_: ProcessIdentity) -> None:
    """As of a process on another machine."""


def taken(path: Path, watch: Watch | None = None) -> Claim:
    claim = try_claim(path, watch or Watch())
    assert isinstance(claim, Claim)
    return claim


def wait_for(path: Path, clock: Clock) -> Claim:
    watch = Watch()
    while not isinstance(claim := try_claim(path, watch, ended=unknown), Claim):
        clock.sleep(1.0)
    return claim


def test_of_two_one_has_it_until_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    first = taken(path)
    assert try_claim(path, Watch()) == this_process() == owner_of(path)
    first.require_held()
    first.release()
    assert not path.exists()
    taken(path).release()


def test_an_owner_that_beats_is_left_alone(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "owner"
    first, watch = taken(path), Watch()
    for _ in range(5):
        beat = path.read_bytes()
        assert not isinstance(try_claim(path, watch, ended=unknown), Claim)
        while path.read_bytes() == beat:
            time.sleep(0.001)
        clock.sleep(0.9 * claim_file.STALE_S)
    first.require_held()
    first.release()


def test_an_owner_elsewhere_that_no_longer_beats_is_followed(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "owner"
    elsewhere = dataclasses.replace(this_process(), host="elsewhere")
    path.write_text(json.dumps({"beat": "0" * 12, "token": "theirs", "owner": asdict(elsewhere)}))
    watch = Watch()
    assert try_claim(path, watch) == elsewhere
    clock.sleep(0.99 * claim_file.STALE_S)
    assert try_claim(path, watch) == elsewhere
    clock.sleep(0.01 * claim_file.STALE_S)
    taken(path, watch).release()
    assert list(tmp_path.iterdir()) == []


def test_an_owner_of_this_machine_that_has_ended_is_followed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "owner"
    ended = dataclasses.replace(this_process(), started=1)
    path.write_text(json.dumps({"beat": "0" * 12, "token": "theirs", "owner": asdict(ended)}))
    taken(path).release()


def test_who_stood_still_learns_that_another_took_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    path = tmp_path / "owner"
    first = taken(path)
    monkeypatch.setattr(claim_file, "_write_beat", lambda *_: True)  # as if it was stopped
    second = wait_for(path, clock)
    with pytest.raises(InputError, match=r"taken over by process \d+ on .* nothing of it was published here"):
        first.require_held()
    first.release()  # does not take the other's away
    second.require_held()
    second.release()


@pytest.mark.parametrize("content", [b"", b"{", b'{"token": 1}', b"\xff" * 9000])
def test_a_claim_that_says_nothing_is_waited_for_and_followed(content: bytes, tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "owner"
    path.write_bytes(content)
    assert try_claim(path, Watch()) is None
    wait_for(path, clock).release()


@pytest.mark.parametrize("written", [OSError(28, "No space left on device"), 5])
def test_a_claim_that_cannot_be_written_keeps_nobody_waiting(
    written: OSError | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(handle: int, content: bytes) -> int:
        if isinstance(written, OSError):
            raise written
        return written

    path = tmp_path / "owner"
    with monkeypatch.context() as full_disk, pytest.raises(OSError, match=f"No space left.*{path}"):
        full_disk.setattr("os.write", write)
        try_claim(path, Watch())
    taken(path).release()


def test_a_removed_folder_is_noticed(tmp_path: Path) -> None:
    claim = taken(tmp_path / "owner")
    (tmp_path / "owner").unlink()
    with pytest.raises(InputError, match="or its folder removed"):
        claim.require_held()
    claim.release()
