"""A job that lost its launcher is sent to the queue by a sentinel, and by nothing else."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmark.launch.slurm.job_steps import end_shepherd
from benchmark.run_record.attempt_folder import new_attempt, read_ending
from benchmark.run_record.file_names import attempt_path
from benchmark.run_record.lease import HeldLease
from tests.benchmark.launch.slurm.stand_in_job import Job

LENGTH_S = 4.0
"""Long enough for a disk that is slow to take a renewal."""
UNREADABLE = """    if (run_dir / "unreadable").exists():
        raise OSError(5, "Input/output error")
    return read_record(lease_path(run_dir), Lease)"""


@pytest.fixture
def held(job: Job) -> Iterator[HeldLease]:
    """Lease of a launcher of job 5."""
    job.log_dir.mkdir()
    job.shorten_lease(LENGTH_S)
    job.edit("launch/slurm/sentinel.py", "LOOK_S = JOB_S / 12", "LOOK_S = 0.1")
    job.edit("run_record/small_files.py", "LOOK_S = 5.0", "LOOK_S = 0.2")
    lease = HeldLease(job.log_dir, "job 5", LENGTH_S, "5-0-tmp-1")
    assert lease.try_to_take(lambda earlier: earlier is None)
    yield lease
    lease.leave(release=False)


def sentinel(job: Job) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "benchmark.launch.slurm.sentinel", str(job.log_dir), "5-0-tmp"]
    return subprocess.Popen(words, env=job.variables, cwd=job.folder / "checkout")


def wait(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def handles_sigterm(process: int) -> bool:
    """While it waits for a signal, the kernel does not count that signal among the blocked ones."""
    if "sigtimedwait" in Path(f"/proc/{process}/wchan").read_text():
        return True
    blocked = re.search(r"SigBlk:\t(\w+)", Path(f"/proc/{process}/status").read_text())
    return blocked is not None and bool(int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1)


def calls(job: Job, phrase: str) -> list[str]:
    return job.calls(phrase) if (job.answers / "calls").exists() else []


@pytest.mark.parametrize(
    ("waiting", "call", "said"),
    [("", "scontrol requeue 5", "when job 5 has come"), ("77", "scancel 5", "goes on in job 77")],
)
def test_a_sentinel_ends_a_job_that_lost_its_launcher(
    waiting: str, call: str, said: str, job: Job, held: HeldLease
) -> None:
    job.answer(waiting=waiting)
    process = sentinel(job)
    try:
        if not waiting:
            time.sleep(1.5 * LENGTH_S)
            assert not calls(job, call)  # the lease is renewed
        held.leave(release=False)
        wait(lambda: calls(job, call))
        assert job.log()[0].startswith("the launcher of job 5 is lost: the run goes on ") and said in job.log()[0]
        assert not (job.log_dir / "lease.json").exists()
    finally:
        process.kill()
        process.wait()


def test_a_sentinel_without_an_answer_of_the_disk_sends_the_job_to_the_queue(job: Job, held: HeldLease) -> None:
    job.edit("launch/slurm/sentinel.py", "AWAY_S = 3 * DISK_S", "AWAY_S = 0.5")
    job.edit("run_record/lease.py", "return read_record(lease_path(run_dir), Lease)", 'raise OSError(5, "away")')
    process = sentinel(job)
    try:
        wait(lambda: calls(job, "scontrol requeue 5"))
    finally:
        process.kill()
        process.wait()


def test_a_sentinel_notes_the_end_of_the_attempt_once_the_disk_is_no_longer_full(job: Job, held: HeldLease) -> None:
    """The next attempt, which begins meanwhile, is not over."""
    first, second = (attempt_path(job.log_dir, new_attempt(job.log_dir)) for _ in range(2))
    second.rename(job.folder / "later")
    full = f'    if Path("{job.log_dir}/full").exists():\n        raise OSError(28, "No space left on device")\n'
    job.edit("run_record/small_files.py", "    path.parent.mkdir(parents=True, exist_ok=True)\n", full)
    (job.log_dir / "full").touch()
    held.leave(release=False)
    process = sentinel(job)
    try:
        wait(lambda: calls(job, "scontrol requeue 5"))
        (job.folder / "later").rename(second)
        (job.log_dir / "full").unlink()
        wait(lambda: read_ending(first))
        job.answer(state="PENDING")
        assert process.wait(60) == 0
        ending = read_ending(first)
        assert ending is not None and (ending.status, ending.action) == (137, "requeue")
        assert read_ending(second) is None and len(job.log()) == 1
    finally:
        process.kill()
        process.wait()


def test_a_sentinel_of_an_instance_that_is_over_leaves_the_next_one_alone(job: Job, held: HeldLease) -> None:
    """As one on a node whose daemon died, which Slurm could not end."""
    job.answer(restarts="1")
    held.leave(release=False)
    process = sentinel(job)
    assert process.wait(60) == 0
    assert not calls(job, "requeue") and (job.log_dir / "lease.json").exists()


@pytest.mark.parametrize(
    ("exit_code", "reason", "lease", "requeued"),
    [
        ("0:9", "None", "held", "the script of job 5 was killed"),
        ("0:9", "None", "unreadable", "the script of job 5 was killed"),
        ("0:9", "None", "released", ""),
        ("0:15", "None", "held", ""),
        ("0:0", "TimeLimit", "held", "the time of job 5 is over"),
        ("0:0", "TimeLimit", "released", ""),
    ],
)
def test_a_job_that_ends_is_requeued_only_if_its_script_was_killed_or_its_time_is_over(
    exit_code: str, reason: str, lease: str, requeued: str, job: Job, held: HeldLease
) -> None:
    """A job that is cancelled, or whose launcher has left in good order, ends."""
    job.answer(exit_code=exit_code, reason=reason, state="COMPLETING")
    job.edit("run_record/lease.py", "    return read_record(lease_path(run_dir), Lease)", UNREADABLE)
    process = sentinel(job)
    try:
        wait(lambda: handles_sigterm(process.pid))
        if lease == "released":
            held.leave(release=True)
        elif lease == "unreadable":
            time.sleep(0.5)  # it looks every 0.1 s
            (job.log_dir / "unreadable").touch()
        job.answer(away="")
        process.send_signal(signal.SIGTERM)
        wait(lambda: lease == "released" or calls(job, "show job"))
        (job.answers / "away").unlink()
        if requeued:
            wait(lambda: calls(job, "scontrol requeue 5"))
            job.answer(state="PENDING")
            assert job.log() == [f"{requeued}: the run goes on when job 5 has come through the queue again"]
        assert process.wait(60) == 0
        assert bool(calls(job, "requeue")) == bool(requeued)
    finally:
        process.kill()
        process.wait()


SRUN = """#!/bin/bash
exec 3> >(read -r; touch "$0.step_killed")
sleep 60 3>&- &
echo $! >"$0.other_child"
wait
"""
"""As srun, it has a child that sees its end and kills its step then."""


@pytest.mark.parametrize("is_ended", [False, True])
def test_sentinels_outlive_an_srun_that_is_killed(is_ended: bool, tmp_path: Path) -> None:
    path = tmp_path / "srun"
    path.write_text(SRUN)
    path.chmod(0o755)
    srun = subprocess.Popen([path])
    other_child, step_killed = tmp_path / "srun.other_child", tmp_path / "srun.step_killed"
    wait(lambda: other_child.exists() and other_child.read_text().strip())
    if is_ended:
        end_shepherd(srun)
    srun.kill()
    srun.wait()
    os.kill(int(other_child.read_text()), signal.SIGTERM)  # it lives: only srun's own child was ended
    if not is_ended:
        wait(step_killed.exists)
    time.sleep(0.2)
    assert step_killed.exists() == (not is_ended)
