"""Processes of a drill end as a step of Slurm does."""

import os
import signal
import time
from pathlib import Path

import pytest

from benchmark.launch.forked_ranks import GRACE_S, highest_status, run_ranks


def _rank_0_fails_rank_1_goes_on(folder: Path) -> None:
    rank = os.environ["RANK"]
    words = f"rank {rank} of {os.environ['WORLD_SIZE']}, attempt {os.environ['ATTEMPT']}\n"
    os.write(1, words.encode())  # at once, as another process writes to the same file
    if rank == "0":
        os._exit(3)
    signal.signal(signal.SIGTERM, lambda *_: (folder / "asked").touch())
    while True:
        time.sleep(0.05)


def _well(folder: Path) -> None:
    os.write(1, f"{os.environ['MASTER_ADDR']}\n".encode())


@pytest.mark.slow
def test_a_failing_process_ends_the_others_which_are_asked_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {"ATTEMPT": "0001"}
    started = time.monotonic()
    status = run_ranks(_rank_0_fails_rank_1_goes_on, [tmp_path], processes=2, environment=environment, log=log)
    assert status == 128 + signal.SIGKILL
    assert time.monotonic() - started > GRACE_S
    assert (tmp_path / "asked").exists()
    assert sorted(log.read_text().splitlines()) == ["rank 0 of 2, attempt 0001", "rank 1 of 2, attempt 0001"]


@pytest.mark.slow
def test_all_well(tmp_path: Path) -> None:
    assert run_ranks(_well, [tmp_path], processes=3, environment={}, log=tmp_path / "log") == 0
    assert (tmp_path / "log").read_text() == "localhost\n" * 3


def test_processes_that_hang_are_killed(tmp_path: Path) -> None:
    status = run_ranks(time.sleep, [60], processes=2, environment={}, log=tmp_path / "log", limit_s=0.3)
    assert status == 128 + signal.SIGKILL


def test_status_is_the_highest() -> None:
    assert highest_status([0, 0]) == 0
    assert highest_status([70, 1, None]) == 70
    assert highest_status([70, -9]) == 137
