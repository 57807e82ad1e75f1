"""What is made of Slurm's answers: time, nodes, and the options of the job that goes on after this one."""

from pathlib import Path

import pytest

from benchmark.launch.keep_running import Refused
from benchmark.launch.slurm import nodes, queue
from benchmark.launch.slurm.job_steps import count_nodes
from benchmark.launch.slurm.nodes import Nodes, job_fields, seconds_left, submitted_s
from benchmark.launch.slurm.queue import chain_name


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("14:59", 899),
        ("2-03:00:00", 183_600),
        ("1:00:00", 3600),
        ("30", 30),
        ("INVALID", 0),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("", None),
    ],
)
def test_time_left_in_every_form(said: str, seconds: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "ask", lambda *words: said)
    assert seconds_left("5") == seconds


def test_fields_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "ask", lambda *words: "JobId=5 Account=(null) TresPerNode=gres:gpu:8 SubmitTime=Unknown")
    assert job_fields("5") == {"JobId": "5", "TresPerNode": "gres:gpu:8", "SubmitTime": "Unknown"}
    assert submitted_s("5") is None


def test_hosts_are_the_job_s_nodes_with_or_without_a_domain() -> None:
    job = Nodes("5", ["n1", "n2.cluster", "n3"])
    assert job.named(["n1.cluster.local", "n2", "n4"]) == ["n1", "n2.cluster"]
    assert job.named([]) == []


@pytest.mark.parametrize(
    ("allocated", "asked", "of_system", "needed"),
    [
        (3, None, 0, 3),
        (3, None, 64, 3),
        (3, None, 2, 3),  # half as many again are no spare ones
        (9, None, 8, 8),  # up to an eighth more are
        (10, None, 8, 10),
        (3, 2, 64, 2),
    ],
)
def test_all_nodes_are_used_unless_a_few_are_beyond_the_system(
    allocated: int, asked: int | None, of_system: int, needed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert count_nodes(allocated, asked, of_system) == needed
    spare = f"{needed} of {allocated} nodes are used, {allocated - needed} are spare\n"
    assert capfd.readouterr().err == (spare if needed < allocated else "")
    with pytest.raises(Refused, match=f"NODES=11, but the job has {allocated} nodes: sbatch --nodes=11 or more"):
        count_nodes(allocated, 11, of_system)


def test_every_run_has_a_name_of_its_own() -> None:
    one, other = chain_name(Path("/logs/run 1")), chain_name(Path("/other/run 1"))
    assert one.startswith("gpt3-run-1-") and one != other == chain_name(Path("/other/run 1"))


def test_options_are_those_that_this_job_was_submitted_with(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"QOS": "high", "TimeLimit": "4:00:00", "StdOut": "/l/slurm-45.out", "TresPerNode": "gres/gpu:8"}
    monkeypatch.setattr(queue, "job_fields", lambda job: said)
    found = queue._same_options("45", {"SLURM_CPUS_PER_TASK": "4"})
    expected = ["--qos=high", "--time=4:00:00", "--output=/l/slurm-%j.out", "--gres=gpu:8", "--cpus-per-task=4"]
    assert found == expected
