"""A process that waits for another says in which collective, when its watchdog asks."""

import json
import mmap
import os
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from benchmark.training.debugging.collective_trace import explaining, pending_collectives, trace
from benchmark.training.liveness.heartbeat import SIZE, HangLimits, Heartbeat, ask
from tests.benchmark.tiny import in_processes


def _told_while_waiting(folder: Path) -> list[str]:
    """Rank 1 comes to the all-reduce only when rank 0 has said that it waits there."""
    rank, heartbeat, path = int(os.environ["RANK"]), Heartbeat(HangLimits(60, 60)), folder / "said.json"
    dist.init_process_group("gloo", init_method="env://")
    with explaining(heartbeat, path):
        if rank == 0:
            threading.Thread(target=_ask_once_it_waits, args=(heartbeat,)).start()
        else:
            while not path.exists():
                time.sleep(0.05)
        dist.all_reduce(torch.zeros(2, 3))
    dist.destroy_process_group()
    return list(json.loads(path.read_text())) if rank == 0 else []


def _ask_once_it_waits(heartbeat: Heartbeat) -> None:
    while not pending_collectives(trace()):
        time.sleep(0.01)
    ask(mmap.mmap(heartbeat.handle, SIZE))


@pytest.mark.slow
def test_collective_that_is_waited_in_is_said(tmp_path: Path) -> None:
    said, _ = in_processes(2, _told_while_waiting, tmp_path)
    assert said == ["gloo:all_reduce number 1 of group 0 default_pg, shape 2x3"]


def test_nothing_is_said_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.training.debugging.collective_trace.LOOK_S", 0.01)
    with explaining(Heartbeat(HangLimits(60, 60)), tmp_path / "said.json"):
        time.sleep(0.05)
    assert not (tmp_path / "said.json").exists()


def test_damaged_traces_tell_nothing() -> None:
    for recorded in (b"", b"{", b"[]", b'{"entries": [{}]}', b'{"entries": 3}'):
        assert pending_collectives(recorded) == []
