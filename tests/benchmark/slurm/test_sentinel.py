"""A job that lost its script is ended by the last node's sentinel."""

import subprocess
import time

import pytest

from tests.benchmark.slurm.stand_in_job import Job, option
from tests.support import REPOSITORY


def test_a_sentinel_on_the_last_node(job: Job) -> None:
    job.run(CHAIN="1")
    (call,) = job.calls("srun", "sentinel.sh")
    assert option(call, "--nodelist") == "n3"
    assert call.endswith("sentinel.sh 77")


def test_no_sentinel_beside_the_script_itself(job: Job) -> None:
    job.answer(nodes="n1", states="n1 allocated")
    job.run(SLURM_JOB_NODELIST="n1", NODES="1")
    assert not job.calls("sentinel.sh")


@pytest.mark.parametrize(("waiting", "call"), [("", "scontrol requeue 5"), ("77", "scancel 5")])
def test_the_sentinel_ends_a_job_that_lost_its_script(job: Job, waiting: str, call: str) -> None:
    job.answer(nodes="n2,n3")  # the script was on n1
    words = ["bash", str(REPOSITORY / "benchmark" / "slurm" / "sentinel.sh"), waiting, "0.1"]
    process = subprocess.Popen(words, env=job.variables)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not ((job.answers / "calls").exists() and job.calls(call)):
            time.sleep(0.1)
        assert job.calls(call)
    finally:
        process.kill()
        process.wait()


def test_the_sentinel_leaves_a_job_alone_that_has_its_script(job: Job) -> None:
    words = ["bash", str(REPOSITORY / "benchmark" / "slurm" / "sentinel.sh"), "", "0.1"]
    process = subprocess.Popen(words, env=job.variables)
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
