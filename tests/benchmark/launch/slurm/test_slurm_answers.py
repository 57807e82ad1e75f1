"""What is made of Slurm's answers: time, nodes, and the options of the job that goes on after this one."""

import math
from pathlib import Path

import pytest

from benchmark.launch.keep_running import Refused
from benchmark.launch.slurm import nodes, queue
from benchmark.launch.slurm.job_steps import count_nodes
from benchmark.launch.slurm.nodes import Nodes, job_fields, seconds_left
from benchmark.launch.slurm.queue import chain_name
from benchmark.run_record.small_files import StoppedWaiting


@pytest.mark.parametrize(("end", "seconds"), [("1899", 899.0), ("990", -10.0), ("Unknown", math.inf), ("", math.inf)])
def test_time_left(end: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    assert seconds_left({"EndTime": end}) == seconds


def test_fields_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        nodes, "ask", lambda *words, times: "JobId=5 Account=(null) TresPerNode=gres:gpu:8 SubmitTime=Unknown"
    )
    assert job_fields("5") == {"JobId": "5", "TresPerNode": "gres:gpu:8", "SubmitTime": "Unknown"}
    answer = "JobId=5 TRES=cpu=4,node=1 Command=/home/me/my run/run.sh StdOut=/logs/a run/%j.out Power="
    monkeypatch.setattr(nodes, "ask", lambda *words, times: answer)
    assert job_fields("5") == {
        "JobId": "5",
        "TRES": "cpu=4,node=1",
        "Command": "/home/me/my run/run.sh",
        "StdOut": "/logs/a run/%j.out",
    }
    monkeypatch.setattr(nodes, "ask", lambda *words, times: "JobId=5 JobState=RUNNING Comment=was JobState=PENDING")
    assert job_fields("5")["JobState"] == "RUNNING"


def answering(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, str]) -> list[float]:
    """Have Slurm's controller give these answers, the last one for ever; return the pauses between questions."""
    pauses: list[float] = []
    coming = list(answers)
    for module in (nodes, queue):
        monkeypatch.setattr(module, "job_fields", lambda job: coming.pop(0) if len(coming) > 1 else coming[0])
    monkeypatch.setattr("benchmark.run_record.small_files.time.sleep", pauses.append)
    return pauses


ANSWER = {"JobId": "5", "JobState": "RUNNING", "NodeList": "n1,n2"}


def test_nodes_are_no_worse_while_slurm_gives_no_answer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pauses = answering(monkeypatch, {}, {}, ANSWER, {}, {}, ANSWER)
    probes = iter([["n1", "n2"], ["n2"]])
    monkeypatch.setattr(nodes, "silent_nodes", lambda names: next(probes))
    monkeypatch.setattr(nodes, "ask", lambda *words: "n1\nn2" if "hostnames" in words else "")
    job = Nodes("5", ["n1", "n2"], lambda: None)
    job.look(probe=True)
    assert (job.up, job.down, len(pauses)) == (["n1"], ["n2"], 3)
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["scontrol show job 5: no answer; tried again for up to 1800 s"] * 2


def test_node_whose_state_is_unknown_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Slurm's controller was started again; a node that stays unknown is left out."""
    pauses = answering(monkeypatch, ANSWER)
    states = iter(["n1 unknown*\nn2 unknown*", "n1 mixed\nn2 unknown*", "n1 mixed\nn2 mixed"])
    monkeypatch.setattr(nodes, "ask", lambda *words: next(states) if words[0] == "sinfo" else "n1\nn2")
    job = Nodes("5", ["n1", "n2"], lambda: None)
    job.look(probe=False)
    assert (job.up, job.down, pauses) == (["n1", "n2"], [], [5.0, 5.0])
    monkeypatch.setattr(nodes, "REGISTER_S", -1.0)
    monkeypatch.setattr(nodes, "ask", lambda *words: "n1 mixed\nn2 unknown*" if words[0] == "sinfo" else "n1\nn2")
    job.look(probe=False)
    assert (job.up, job.down) == (["n1"], ["n2"])


def test_order_to_stop_ends_the_waiting_for_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {})
    with pytest.raises(StoppedWaiting):
        nodes.job_with_answer("5", lambda: "SIGUSR2")


@pytest.mark.parametrize(
    ("answers", "statuses", "successor", "line"),
    [
        ([ANSWER], [0], "this job", "when job 5 has come through"),
        ([{}, ANSWER], [0], "this job", "no answer; tried again"),
        ([ANSWER, {}, {}, ANSWER], [1, 0], "this job", "no answer; tried again"),
        ([ANSWER], [1], "nobody", "cannot be requeued here"),
        ([ANSWER, {"JobState": "PENDING"}], [1], "this job", "when job 5 has come through"),
    ],
)
def test_job_goes_back_to_the_queue_once_slurm_answers(
    answers: list[dict[str, str]],
    statuses: list[int],
    successor: str,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    answering(monkeypatch, *answers)
    coming = iter(statuses)
    monkeypatch.setattr(queue, "waiting_job", lambda job, run_dir: None)
    monkeypatch.setattr("benchmark.launch.slurm.nodes.subprocess.call", lambda *words, **options: next(coming))
    assert queue.go_on_later("5", Path("/logs"), (), lambda: False) == successor
    assert line in capfd.readouterr().err
    assert next(coming, None) is None


def test_slurm_that_never_answers_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    answering(monkeypatch, {})
    monkeypatch.setattr(nodes, "SLURM_S", 0.0)
    assert queue.go_on_later("5", Path("/logs"), (), lambda: False) == "nobody"
    assert "Slurm gave no answer for 30 minutes" in capfd.readouterr().err


def test_hosts_are_the_job_s_nodes_with_or_without_a_domain() -> None:
    job = Nodes("5", ["n1", "n2.cluster", "n3"], lambda: None)
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
