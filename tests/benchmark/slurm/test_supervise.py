"""What the job does, with stand-ins for Slurm's commands and Python: attempts, nodes, requeue, chain, signals."""

import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import REPOSITORY

STAND_IN = Path(__file__).with_name("stand_in.sh")
COMMANDS = ("srun", "squeue", "scontrol", "sinfo", "sbatch", "scancel", "python3")


@dataclass
class Job:
    """A job on nodes n1 to n3, of which the run takes two."""

    folder: Path

    def __post_init__(self) -> None:
        self.answers, self.log_dir = self.folder / "answers", self.folder / "log"
        (self.folder / "bin").mkdir()
        self.answers.mkdir()
        for name in COMMANDS:
            (self.folder / "bin" / name).symlink_to(STAND_IN)
        self.answer(left="UNLIMITED", states="n1 allocated\nn2 allocated\nn3 allocated", nodes="n1,n2,n3")
        self.answer(interpreter="nodes 64", statuses="0", decisions="done 0")
        checkout = self.folder / "checkout"
        shutil.copytree(REPOSITORY / "benchmark" / "slurm", checkout / "benchmark" / "slurm")
        for name in ("run_gpt3.sh", "environment.sh"):
            shutil.copy(REPOSITORY / name, checkout / name)
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER"))},
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "STAND_IN": str(self.answers),
            "SLURM_JOB_ID": "5",
            "SLURM_SUBMIT_DIR": str(checkout),
            "SLURM_JOB_NODELIST": "n1,n2,n3",
            "SLURM_NTASKS_PER_NODE": "8",
            "SLURMD_NODENAME": "n1",
            "COM_DIR": "/data",
            "USE_BF16": "true",
            "NODES": "2",
        }

    def answer(self, **lines: str) -> None:
        for name, text in lines.items():
            (self.answers / name).write_text(f"{text}\n")

    def run(self, container: str = "none", **variables: str) -> "subprocess.CompletedProcess[str]":
        words = [str(REPOSITORY / "run_gpt3.sh"), str(self.log_dir), "/bpe", container]
        return subprocess.run(
            words, env={**self.variables, **variables}, capture_output=True, text=True, timeout=60, check=False
        )

    def calls(self, *phrases: str) -> list[str]:
        lines = (self.answers / "calls").read_text().splitlines()
        return [line for line in lines if all(phrase in line for phrase in phrases)]

    def attempts(self) -> list[str]:
        return self.calls("srun", "benchmark train")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "somebody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    words = ["git", "-C", str(folder), *arguments]
    return subprocess.run(words, env={**os.environ, **who}, capture_output=True, text=True, check=True).stdout.strip()


def option(call: str, name: str) -> str:
    found = re.search(rf"{name}=(\S+)", call)
    assert found is not None, call
    return found[1]


def test_a_run_that_ends_by_itself(job: Job) -> None:
    done = job.run()
    assert done.returncode == 0, done.stderr
    (attempt,) = job.attempts()
    assert (option(attempt, "--nodes"), option(attempt, "--ntasks"), option(attempt, "--nodelist")) == (
        "2",
        "16",
        "n1,n2",
    )
    assert (option(attempt, "ATTEMPT"), option(attempt, "LAUNCH_ID")) == ("0001", "5")
    assert option(attempt, "MASTER_ADDR") == "address-of-n1"
    assert "--gpus" not in attempt
    assert "warning: the nodes have GPUs that the job did not get" in done.stdout
    assert option(attempt, "SUBMITTED_S").isdigit()
    assert not job.calls("requeue")
    assert "2 of 3 nodes are used, 1 are spare" in done.stdout
    assert (job.log_dir / "slurm_5.out").read_text().splitlines()[-1] == "attempt 0001: why it is so"


def test_gpus_of_the_job_are_those_of_its_steps(job: Job) -> None:
    """In a job that has its nodes to itself a step sees no GPU unless it asks; one for each task is inherited."""
    job.answer(decisions="again 1\ndone 0", statuses="1\n0")
    job.run("image", SLURM_GPUS_ON_NODE="8")
    for phrase in ("interpreter_check", "benchmark train"):
        assert "--gpus-per-node=8" in job.calls("srun", phrase)[0]
    job.run(SLURM_GPUS_ON_NODE="8", SLURM_GPUS_PER_TASK="1")
    assert "--gpus" not in job.attempts()[-1]


def test_a_failed_run_starts_again_without_the_node_that_failed(job: Job) -> None:
    job.answer(statuses="137\n0", decisions="again 137 n1.cluster.local\ndone 0")
    done = job.run()
    assert done.returncode == 0, done.stderr
    first, second = job.attempts()
    assert (option(first, "--nodelist"), option(second, "--nodelist")) == ("n1,n2", "n2,n3")
    assert option(second, "MASTER_ADDR") == "address-of-n2"
    assert option(first, "MASTER_PORT") != option(second, "MASTER_PORT")
    (asked, _) = job.calls("next-attempt")
    assert "--status 137 --spare 1" in asked


def test_nodes_that_are_down_or_silent_are_left_out(job: Job) -> None:
    job.answer(statuses="1\n0", decisions="again 1\ndone 0")
    job.answer(during='echo "n1 allocated\nn2 down*\nn3 allocated" >"$answers/states"')
    job.run()
    assert option(job.attempts()[1], "--nodelist") == "n1,n3"
    assert "--spare 0 --down-nodes n2" in job.calls("next-attempt")[0]


def test_a_node_that_answers_nothing_counts_before_slurm_notices(job: Job) -> None:
    job.answer(statuses="1\n0", decisions="again 1\ndone 0", silent="n2")
    job.run()
    assert option(job.attempts()[1], "--nodelist") == "n1,n3"
    assert "--spare 0 --down-nodes n2" in job.calls("next-attempt")[0]


def test_too_few_nodes_go_back_to_the_queue(job: Job) -> None:
    job.answer(
        statuses="1", decisions="requeue 75", during='echo "n1,n3" >"$answers/nodes"; sed -i 1d "$answers/calls"'
    )
    done = job.run(NODES="3")
    assert "--spare -1 --down-nodes n2" in job.calls("next-attempt")[0]
    assert job.calls("scontrol requeue 5")
    assert done.returncode == 75


@pytest.mark.parametrize(("status", "decision"), [(2, "stop 2"), (1, "stop 1"), (70, "stop 70")])
def test_a_run_that_is_given_up_is_never_requeued(job: Job, status: int, decision: str) -> None:
    job.answer(statuses=str(status), decisions=decision, waiting="77")
    done = job.run(CHAIN="1")
    assert done.returncode == status
    assert len(job.attempts()) == 1
    assert not job.calls("requeue")
    assert job.calls("scancel --state=PENDING 77")
    assert "attempt 0001: why it is so" in done.stdout


def test_without_an_answer_a_saved_run_is_requeued_and_a_failed_one_ends(job: Job) -> None:
    job.answer(statuses="75", decisions="Traceback")
    assert job.run().returncode == 75
    assert job.calls("scontrol requeue")
    job.answer(statuses="3")
    assert job.run().returncode == 3
    assert len(job.calls("scontrol requeue")) == 1


def test_a_job_waits_behind_this_one(job: Job) -> None:
    job.answer(statuses="75", decisions="requeue 75")
    done = job.run(CHAIN="1", NEW_SNAPSHOT="1", CHAIN_OPTIONS="--mail-type END")
    (queued,) = job.calls("sbatch")
    for word in (
        "--dependency=singleton",
        "--nodes=3",
        "--partition=main",
        "--time=02:00:00",
        "--output=/logs5/slurm-%j.out",
    ):
        assert word in queued
    assert "--mail-type END" in queued
    assert str(job.log_dir) in queued
    assert option(queued, "--job-name") == option(job.calls("scontrol update")[0], "JobName")
    assert "the run goes on in job 77" in done.stdout
    assert done.returncode == 75
    assert not job.calls("scontrol requeue")


def test_one_job_waits_at_a_time(job: Job) -> None:
    job.answer(waiting="66")
    done = job.run(CHAIN="1")
    assert not job.calls("sbatch")
    assert job.calls("scancel --state=PENDING 66")  # the run has ended
    assert done.returncode == 0


def test_no_job_waits_unless_asked_for(job: Job) -> None:
    job.run()
    assert not job.calls("sbatch") and not job.calls("JobName")


def test_exit_file_ends_run_and_chain(job: Job) -> None:
    job.log_dir.mkdir()
    (job.log_dir / "exit").touch()
    done = job.run(CHAIN="1")
    assert done.returncode == 75
    assert not job.attempts()
    assert job.calls("scancel --state=PENDING 77")
    assert not (job.log_dir / "exit").exists()


@pytest.mark.parametrize(
    ("left", "starts"),
    [
        ("14:59", False),
        ("15:01", True),
        ("2-03:00:00", True),
        ("UNLIMITED", True),
        ("NOT_SET", True),
        ("INVALID", False),
    ],
)
def test_a_job_without_time_is_refused(job: Job, left: str, starts: bool) -> None:
    job.answer(left=left)
    done = job.run()
    assert done.returncode == (0 if starts else 2), done.stderr
    assert len(job.attempts()) == starts
    assert ("within EXIT_MARGIN_MINUTES=15" in done.stdout) != starts


def test_a_failure_near_the_end_of_the_time_goes_back_to_the_queue(job: Job) -> None:
    job.answer(left="2:00:00", statuses="70", decisions="again 70", during='echo 5:00 >"$answers/left"')
    assert job.run().returncode == 75
    assert len(job.attempts()) == 1
    assert job.calls("scontrol requeue")


def test_sigusr2_reaches_the_processes_and_the_job_is_requeued(job: Job) -> None:
    """Also where they fail instead of saving."""
    during = "trap 'touch \"$answers/heard\"; exit 70' USR2; kill -USR2 $PPID; for _ in $(seq 100); do sleep 0.1; done"
    job.answer(statuses="70", decisions="again 70", during=during)
    done = job.run()
    assert (job.answers / "heard").exists()
    assert len(job.attempts()) == 1
    assert job.calls("scontrol requeue")
    assert done.returncode == 75


def test_slurms_early_warning_waits_for_the_margin(job: Job) -> None:
    """--signal comes 15 minutes before the end; EXIT_MARGIN_MINUTES=5 trains ten minutes more."""
    during = "trap 'touch \"$answers/heard\"' USR2; kill -USR2 $PPID; sleep 0.5"
    job.answer(left="15:30", during=during)
    assert job.run(EXIT_MARGIN_MINUTES="5").returncode == 0
    assert not (job.answers / "heard").exists()


def test_sigterm_ends_the_job_for_good(job: Job) -> None:
    during = "trap 'exit 75' TERM; kill -TERM $PPID; for _ in $(seq 100); do sleep 0.1; done"
    job.answer(statuses="75", decisions="requeue 75", during=during)
    done = job.run()
    assert done.returncode == 75
    assert not job.calls("requeue") and not job.calls("next-attempt")
    assert "ended by SIGTERM" in done.stdout


def test_container_runs_every_python(job: Job) -> None:
    done = job.run("image")
    for phrase in ("interpreter_check", "environment_snapshot", "benchmark train", "next-attempt"):
        (call,) = job.calls(phrase)
        assert call.startswith("srun ") and "--container-name gpt3_5" in call
    assert done.returncode == 1  # the stand-in for srun has no decision


def test_interpreter_that_cannot_run_it_is_one_line(job: Job) -> None:
    (job.folder / "bin" / "python3").unlink()
    (job.folder / "bin" / "python3").write_text(
        '#!/bin/sh\ncase $* in *dependencies*) exit 0;; *check*) echo "error: python3 3.8.10: too old"; exit 2;; esac\n'
    )
    (job.folder / "bin" / "python3").chmod(0o755)
    done = job.run()
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "error: python3 3.8.10: too old, in CONTAINER none"
    assert not job.calls("srun")


@pytest.mark.parametrize(("system_nodes", "used"), [("64", 3), ("3", 3), ("2", 3)])
def test_all_nodes_are_used_unless_a_few_are_beyond_the_system(job: Job, system_nodes: str, used: int) -> None:
    job.answer(interpreter=f"nodes {system_nodes}")
    job.run(NODES="")
    assert option(job.attempts()[0], "--nodes") == str(used)


def test_up_to_an_eighth_more_nodes_are_spare(job: Job) -> None:
    names = ",".join(f"n{number}" for number in range(9))
    job.answer(interpreter="nodes 8", nodes=names, states="")
    job.run(NODES="", SLURM_JOB_NODELIST=names)
    assert option(job.attempts()[0], "--nodes") == "8"


def test_job_with_fewer_nodes_than_asked_for_is_refused(job: Job) -> None:
    done = job.run(NODES="4")
    assert (done.returncode, "NODES=4, but the job has 3 nodes" in done.stdout) == (2, True)


def test_code_is_that_of_the_beginning(job: Job) -> None:
    """Of a checkout with changes, and whatever becomes of it."""
    checkout, snapshot = job.folder / "checkout", job.log_dir / "snapshot"
    (checkout / "benchmark" / "loop.py").write_text("first\n")
    (checkout / "gone.py").touch()
    (checkout / ".gitignore").write_text("*.log\n")
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "first")
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "benchmark" / "loop.py").write_text("changed\n")
    (checkout / "gone.py").unlink()
    (checkout / "new file.py").write_text("untracked\n")
    (checkout / "large.bin").write_bytes(bytes(2 << 20))
    (checkout / "some.log").touch()
    assert job.run().returncode == 0
    code = snapshot / "code"
    assert (code / ".commit").read_text() == f"{commit}-dirty\n"
    assert (code / "benchmark" / "loop.py").read_text() == "changed\n"
    assert (code / "new file.py").exists()
    assert not any((code / name).exists() for name in ("gone.py", "large.bin", "some.log", ".git"))
    assert "+changed" in (snapshot / "git.diff").read_text()
    assert f"commit {commit}-dirty" in (snapshot / "git.txt").read_text()
    assert (snapshot / "job_5_0.txt").exists()
    assert job.calls("python3", "environment_snapshot", f"{snapshot}/job_5_0.json")

    shutil.rmtree(checkout / "benchmark" / "slurm")
    (checkout / "benchmark" / "loop.py").write_text("later\n")
    again = job.run(SLURM_RESTART_COUNT="1")
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"commit {commit}-dirty" in again.stdout
    assert (code / "benchmark" / "loop.py").read_text() == "changed\n"

    git(checkout, "checkout", "--quiet", "--", "benchmark/slurm")
    git(checkout, "commit", "--quiet", "--all", "--message", "second")
    assert f"the checkout is at {git(checkout, 'rev-parse', 'HEAD')} by now" in job.run().stdout
    assert job.run(NEW_SNAPSHOT="1").returncode == 0
    assert (code / "benchmark" / "loop.py").read_text() == "later\n"
    assert (snapshot / "code.1" / "benchmark" / "loop.py").read_text() == "changed\n"
    job.run(NEW_SNAPSHOT="1", SLURM_RESTART_COUNT="1")  # the same job, requeued
    assert not (snapshot / "code.2").exists()


def test_code_without_git(job: Job) -> None:
    checkout = job.folder / "checkout"
    (checkout / "runs").mkdir()
    (checkout / "runs" / "data").touch()
    job.log_dir = checkout / "log"
    assert job.run().returncode == 0
    code = job.log_dir / "snapshot" / "code"
    assert (code / ".commit").read_text() == ""
    assert (code / "benchmark" / "slurm" / "supervise.sh").exists()
    assert not (code / "runs").exists() and not (code / "log").exists()


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
