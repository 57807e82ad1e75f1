"""What is made of Slurm's answers."""

import pytest

from benchmark.launch.slurm import nodes
from benchmark.launch.slurm.nodes import Nodes, job_fields, seconds_left, submitted_s


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
