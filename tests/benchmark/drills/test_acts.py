"""What faults do, as far as the test's own process outlives it; the rest is done by whole drills."""

import builtins
import errno
import io
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmark.drills.acts import ACTS, REPEATED, Strike
from benchmark.drills.faults import Act, Fault


def _strike(act: Act, run_dir: Path = Path("run"), *, amount: float = 0.0, count: int = 1) -> Strike:
    return Strike(Fault(act, "passes", amount=amount), run_dir, count, time.monotonic())


def test_every_act_is_done() -> None:
    assert set(ACTS) == set(Act.__args__)  # type: ignore[attr-defined]
    assert set(ACTS) > REPEATED


@pytest.mark.parametrize("act", ["nan", "inf"])
def test_gradient_is_spoiled_so_many_times(act: Act) -> None:
    gradients = [torch.zeros(0), torch.zeros(2, 2)]
    optimizer = SimpleNamespace(_gradients=lambda: gradients)
    first, last = _strike(act, amount=2), _strike(act, amount=2, count=2)
    ACTS[act](first, (optimizer,))
    ACTS[act](last, (optimizer,))
    assert not torch.isfinite(gradients[1][0, 0])
    assert gradients[1].flatten()[1:].tolist() == [0, 0, 0]
    assert (first.over, last.over) == (False, True)


def test_one_bit_of_a_weight() -> None:
    weight = torch.ones(2, 2)
    ACTS["flip a weight"](_strike("flip a weight", amount=22), (SimpleNamespace(tensors=lambda: {"w": weight}),))
    assert weight.tolist() == [[1.5, 1], [1, 1]]


def test_memory_is_refused_in_pytorchs_words() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        ACTS["out of memory"](_strike("out of memory"), ())


def test_disk_is_full() -> None:
    with pytest.raises(OSError, match="No space left") as raised:
        ACTS["disk full"](_strike("disk full"), ())
    assert raised.value.errno == errno.ENOSPC


def test_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time()
    monkeypatch.setattr(time, "time", time.time)
    monkeypatch.setattr(time, "time_ns", time.time_ns)
    ACTS["clock jump"](_strike("clock jump", amount=-3600), ())
    assert -3700 < time.time() - before < -3500
    assert -3700 < time.time_ns() / 1e9 - before < -3500


def test_folder_is_read_only_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in ((io, ["open"]), (builtins, ["open"]), (os, ["open", "mkdir", "rename", "replace", "unlink"])):
        for name in (*names, *(["rmdir", "pwrite"] if module is os else [])):
            monkeypatch.setattr(module, name, getattr(module, name))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "old").write_text("there")
    handle = os.open(run_dir / "log", os.O_RDWR | os.O_CREAT)
    ACTS["read-only"](_strike("read-only", run_dir, amount=1000), ())
    attempts: list[Any] = [
        lambda: (run_dir / "new").write_text("x"),
        lambda: (run_dir / "folder").mkdir(),
        lambda: os.open(run_dir / "old", os.O_WRONLY),
        lambda: os.pwrite(handle, b"x", 0),
        lambda: (run_dir / "old").unlink(),
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match="Read-only"):
            attempt()
    assert (run_dir / "old").read_text() == "there"
    (tmp_path / "beside").write_text("x")
    later_s = time.monotonic() + 2000
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    for attempt in attempts:
        attempt()
    os.close(handle)


def test_sink_fails_for_a_while() -> None:
    strike = _strike("sink fails", amount=100)
    with pytest.raises(OSError, match="Input/output error"):
        ACTS["sink fails"](strike, ())
    strike.since_s -= 101
    assert ACTS["sink fails"](strike, ("sink", "event")) == ("sink", "event")
    assert strike.over


def test_triggers_are_touched_and_checkpoints_deleted(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step_00000004").mkdir(parents=True)
    ACTS["touch save"](_strike("touch save", tmp_path), ())
    ACTS["touch exit"](_strike("touch exit", tmp_path), ())
    ACTS["delete checkpoints"](_strike("delete checkpoints", tmp_path), ())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exit", "save"]
