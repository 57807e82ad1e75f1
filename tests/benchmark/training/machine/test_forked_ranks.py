"""Processes are forked with torchrun's variables, and one that fails or takes too long ends them all."""

import os
import signal
import time
from pathlib import Path

import pytest

from benchmark.training.machine.forked_ranks import highest_status, run_ranks


def _rank_0_fails_rank_1_goes_on(log: Path) -> None:
    rank, world, master, attempt = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "ATTEMPT"))
    os.write(1, f"rank {rank} of {world} at {master}, attempt {attempt}\n".encode())  # at once: both write to one file
    while rank == "1" or log.read_text().count("\n") < 2:
        time.sleep(0.05)
    os._exit(3)


def test_a_failing_process_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.training.machine.forked_ranks.GRACE_S", 0.2)
    log, environment = tmp_path / "log", {"ATTEMPT": "0001"}
    status = run_ranks(_rank_0_fails_rank_1_goes_on, [log], processes=2, environment=environment, log=log)
    assert status == 128 + signal.SIGKILL
    assert sorted(log.read_text().splitlines()) == [f"rank {one} of 2 at localhost, attempt 0001" for one in (0, 1)]


def test_processes_that_hang_are_killed(tmp_path: Path) -> None:
    status = run_ranks(time.sleep, [60], processes=2, environment={}, log=tmp_path / "log", limit_s=0.3)
    assert status == 128 + signal.SIGKILL


def test_status_is_the_highest() -> None:
    assert highest_status([0, 0]) == 0
    assert highest_status([70, 1, None]) == 70
    assert highest_status([70, -9]) == 137
