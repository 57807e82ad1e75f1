"""A job that lost its script is ended by the last node's sentinel."""

import subprocess
import sys
import time

import pytest

from tests.benchmark.launch.slurm.stand_in_job import Job
from tests.support import REPOSITORY


def sentinel(job: Job) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "benchmark.launch.slurm.sentinel", str(job.log_dir), "0.1"]
    job.log_dir.mkdir(exist_ok=True)
    return subprocess.Popen(words, env=job.variables, cwd=REPOSITORY)


@pytest.mark.parametrize(
    ("waiting", "call", "said"),
    [("", "scontrol requeue 5", "when job 5 has come"), ("77", "scancel 5", "goes on in job 77")],
)
def test_the_sentinel_ends_a_job_that_lost_its_script(job: Job, waiting: str, call: str, said: str) -> None:
    job.answer(nodes="n2,n3", waiting=waiting)  # the script was on n1
    process = sentinel(job)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not ((job.answers / "calls").exists() and job.calls(call)):
            time.sleep(0.1)
        assert job.calls(call)
        assert job.log()[0].startswith("node n1, on which the job's script ran, is lost: the run ")
        assert said in job.log()[0]
    finally:
        process.kill()
        process.wait()


def test_the_sentinel_leaves_a_job_alone_that_has_its_script(job: Job) -> None:
    process = sentinel(job)
    try:
        deadline = time.monotonic() + 60
        while not ((job.answers / "calls").exists() and len(job.calls("show job")) >= 8):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        assert not job.calls("requeue") and not job.calls("scancel")
    finally:
        process.kill()
        process.wait()
