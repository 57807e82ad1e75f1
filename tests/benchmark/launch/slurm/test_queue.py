"""The job that goes on after this one: its name and options. What becomes of it: test_job.py."""

from pathlib import Path

import pytest

from benchmark.launch.slurm import queue
from benchmark.launch.slurm.queue import chain_name


def test_every_run_has_a_name_of_its_own() -> None:
    one, other = chain_name(Path("/logs/run 1")), chain_name(Path("/other/run 1"))
    assert one.startswith("gpt3-run-1-") and one != other == chain_name(Path("/other/run 1"))


def test_options_are_those_that_this_job_was_submitted_with(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"QOS": "high", "TimeLimit": "4:00:00", "StdOut": "/l/slurm-45.out", "TresPerNode": "gres/gpu:8"}
    monkeypatch.setattr(queue, "job_fields", lambda job: said)
    found = queue._same_options("45", {"SLURM_CPUS_PER_TASK": "4"})
    expected = ["--qos=high", "--time=4:00:00", "--output=/l/slurm-%j.out", "--gres=gpu:8", "--cpus-per-task=4"]
    assert found == expected
