"""The faults of a job under Slurm, as a table: how the job is submitted, what happens to it, what mends the cluster."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.drills.fuzz.drawn_faults import ROLES, DiskFault, Moment
from tests.drills.slurm_run import SlurmDrill

Act = Callable[[SlurmDrill, str], None]
"""Act on a run; the second argument is the number of its job."""


@dataclass(frozen=True)
class SlurmFault:
    """One drill. The act comes after FAULT_AT steps; then the end of all jobs is waited for."""

    act: Act | None = None
    mend: Act | None = None
    """Make the cluster whole again, whatever came of the run."""
    prepare: Callable[[SlurmDrill], None] | None = None
    """Act on the surroundings before the job is submitted."""
    variables: Mapping[str, str] = field(default_factory=dict)
    sbatch: tuple[str, ...] = ()
    """More options of sbatch; later ones win."""
    submitted_again: bool = False
    """The same command is given once more after the end."""
    refused: str = ""
    """A line with which one of the jobs must have ended."""
    most_attempts: int | None = None
    goes_on: bool = True
    """False if the run cannot begin and must end at once."""
    at_once: bool = False
    """Whether the act comes as soon as the job runs, before any step."""
    preloaded: tuple[str, DiskFault] | None = None
    """A fault of the disk below a path in LOG_DIR, which the act begins."""

    def run(self, drill: SlurmDrill) -> None:
        drill.variables |= self.variables
        drill.sbatch = (*drill.sbatch, *self.sbatch)
        if self.prepare is not None:
            self.prepare(drill)
        if self.preloaded is not None:
            drill.preload(*self.preloaded)
        job = drill.submit()
        with drill.watched():
            try:
                if self.act is not None:
                    if self.at_once:
                        drill.wait(lambda: bool(drill.jobs("RUNNING")), "the job's start")
                    else:
                        drill.wait_for_step()
                    drill.strike()
                    self.act(drill, job)
                drill.wait_for_end()
            finally:
                if self.mend is not None:
                    self.mend(drill, job)
            if self.submitted_again:
                drill.submit()
                drill.wait_for_end()


def _rank_1(number: int) -> Act:
    return lambda drill, _: drill.signal_rank_1(number)


def _run(*words: str) -> Act:
    """Give Slurm a command; JOB stands for the number of the job."""

    def act(drill: SlurmDrill, job: str) -> None:
        drill.cluster.run(*(job if word == "JOB" else word for word in words))

    return act


def _slurmd_killed(drill: SlurmDrill, _: str) -> None:
    """The daemon of the second node dies, its processes go on; it is started again later."""
    drill.cluster.kill_daemon("slurmd-n2")
    drill.wait(lambda: "down" in drill.cluster.states()["n2"], "node n2 down")
    time.sleep(20)
    drill.cluster.start("n2")


def _lose_power(node: str, drill: SlurmDrill, _: str) -> None:
    drill.cluster.kill_node(node)


def _give_power(node: str, drill: SlurmDrill, _: str) -> None:
    drill.cluster.start(node)
    drill.wait(lambda: drill.cluster.states()[node] == "idle", f"node {node} idle again")


def _requeued_and_edited(drill: SlurmDrill, job: str) -> None:
    """The code is edited meanwhile: what runs is what ran."""
    for name in ("training/loop.py", "launch/keep_running.py"):
        (drill.checkout / "benchmark" / name).write_text("raise SystemExit('edited while the job was in the queue')\n")
    drill.cluster.run("scontrol", "requeue", job)


def _exit_file(drill: SlurmDrill, _: str) -> None:
    """A person ends run and chain by a file."""
    (drill.run_dir / "exit").touch()


REFUSED_BESIDE = "runs there; end it first, or choose another folder"


def _second_submission(drill: SlurmDrill, _: str) -> None:
    """Another job into the same folder by mistake, and then a fault of the first."""
    drill.sbatch = ("--nodes=1", "--ntasks-per-node=1")  # a node is left for it
    drill.submit()
    drill.wait(lambda: REFUSED_BESIDE in drill.output(), "the refusal")
    drill.strike()
    drill.signal_rank_1(signal.SIGKILL)


def _cancelled_chain(drill: SlurmDrill, job: str) -> None:
    """The job that waits is cancelled, then this one is asked to stop: it comes through the queue itself, without the
    two minutes that Slurm holds a requeued job."""
    drill.cluster.run("scancel", "--state=PENDING", *[other for other in drill.jobs() if other != job])
    drill.ask_to_stop(job)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and "PENDING" not in drill.cluster.run("squeue", "-h", "-o", "%T"):
        time.sleep(1)
    drill.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)


def _unwritable_folder(drill: SlurmDrill, _: str) -> None:
    """Nothing can be made in the run's folder for 20 s (EPERM), and a rank dies meanwhile."""
    process = drill.rank_1()
    folders = [drill.run_dir, drill.run_dir / "attempts", *(drill.run_dir / "attempts").iterdir()]
    subprocess.run(["chattr", "+i", *folders], check=True)
    drill.strike()
    subprocess.run(["kill", "-9", str(process)], check=True)
    time.sleep(20)
    subprocess.run(["chattr", "-i", *folders], check=True)


def _folder_away_at_the_return(drill: SlurmDrill, job: str) -> None:
    """The job comes back from the queue while nothing can be written in the run's folder for 20 s (EPERM)."""
    drill.cluster.run("scontrol", "requeue", job)
    drill.wait(lambda: "PENDING" in drill.cluster.run("squeue", "-h", "-o", "%T"), "the queue")
    subprocess.run(["chattr", "+i", drill.run_dir], check=True)
    drill.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    drill.wait(lambda: "RUNNING" in drill.cluster.run("squeue", "-h", "-o", "%T"), "the return")
    time.sleep(20)
    subprocess.run(["chattr", "-i", drill.run_dir], check=True)


def _launcher_killed(drill: SlurmDrill, _: str) -> None:
    """The launcher is killed; its script starts it again."""
    (process,) = drill.cluster.launchers(drill.run_dir)
    drill.strike()
    os.kill(process, signal.SIGKILL)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _script_killed(drill: SlurmDrill, _: str) -> None:
    """The job's script and its launcher are killed: Slurm ends the job as failed, unless a sentinel sends it on."""
    (process,) = drill.cluster.launchers(drill.run_dir)
    script = _parent(process)
    drill.strike()
    for victim in (script, process):
        os.kill(victim, signal.SIGKILL)
    _start_now(drill)


def _batch_daemon_killed(drill: SlurmDrill, _: str) -> None:
    """The daemon of the batch step is killed: Slurm requeues the job while its script lives."""
    (process,) = drill.cluster.launchers(drill.run_dir)
    daemon = _parent(_parent(process))
    drill.strike()
    os.kill(daemon, signal.SIGKILL)
    _start_now(drill)


def _launcher_stopped(drill: SlurmDrill, _: str) -> None:
    (process,) = drill.cluster.launchers(drill.run_dir)
    drill.strike()
    os.kill(process, signal.SIGSTOP)


def _start_now(drill: SlurmDrill) -> None:
    """Start a job that Slurm holds for two minutes after it requeued it."""
    if drill.wait_or_end(lambda: "PENDING" in drill.cluster.run("squeue", "-h", "-o", "%T")):
        for job in drill.jobs():
            drill.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)


def _lose_two(names: tuple[str, str], drill: SlurmDrill, _: str) -> None:
    """Two nodes are lost, the one after the other has been left out of an attempt; they come back."""
    drill.cluster.kill_node(names[0])
    if names[0] == "n3":  # with the sentinel of a node that the run does not use
        drill.wait(lambda: "down" in drill.cluster.states()[names[0]], f"node {names[0]} down")
    drill.cluster.kill_node(names[1])
    drill.wait(lambda: "down" in drill.cluster.states()[names[1]], f"node {names[1]} down")
    for name in names:
        drill.cluster.start(name)
    _start_now(drill)


def _first_daemon_killed(drill: SlurmDrill, _: str) -> None:
    """The daemon of the first node dies, its processes and the launcher go on; it is started again after the run."""
    drill.cluster.kill_daemon("slurmd-n1")
    drill.wait(lambda: "down" in drill.cluster.states()["n1"], "node n1 down")


def _daemon_of_rank_0(drill: SlurmDrill, _: str) -> None:
    (process,) = drill.cluster.processes_of_rank(0, drill.run_dir)
    os.kill(_parent(process), signal.SIGKILL)


def _controller_away(drill: SlurmDrill, _: str) -> None:
    """Slurm's controller is away for four minutes, and a rank dies meanwhile."""
    process = drill.rank_1()
    drill.cluster.kill_daemon("slurmctld")
    drill.strike()
    subprocess.run(["kill", "-9", str(process)], check=True)
    time.sleep(240)
    drill.cluster.run("slurmctld")


def _slurmstepd(drill: SlurmDrill, _: str) -> None:
    """The daemon of a node's step dies: srun sends SIGTERM to the other ranks, which is no order to stop."""
    parent = Path(f"/proc/{drill.rank_1()}/stat").read_text().rpartition(")")[2].split()[1]
    subprocess.run(["kill", "-9", parent], check=True)


def _disk_away(drill: SlurmDrill, _: str) -> None:
    """Calls below LOG_DIR, or of checkpoints alone, fail for a while, and a rank dies meanwhile."""
    process = drill.rank_1()
    assert drill.disk is not None
    drill.disk.begin(0)
    drill.strike()
    os.kill(process, signal.SIGKILL)


def _killed_after_run_stop(drill: SlurmDrill, _: str) -> None:
    """Both ranks are killed while run_stop is in the log and the summary cannot be written yet."""
    assert drill.disk is not None
    drill.disk.begin(0)
    log = drill.run_dir / "result_0.txt"
    drill.wait(lambda: '"run_stop"' in log.read_text(), "run_stop")
    drill.strike()
    for rank in (0, 1):
        for process in drill.cluster.processes_of_rank(rank, drill.run_dir):
            os.kill(process, signal.SIGKILL)
    drill.disk.end(0)


def _sync_hangs(drill: SlurmDrill) -> None:
    """``sync`` does not end on any node."""
    folder = drill.folder / "bin"
    folder.mkdir()
    (folder / "sync").write_text("#!/bin/sh\nexec sleep 100000\n")
    (folder / "sync").chmod(0o755)
    drill.variables["PATH"] = f"{folder}:{drill.cluster.environment['PATH']}"


def _given_up(drill: SlurmDrill, _: str) -> None:
    """Rank 1 is killed in each attempt before it saves, until the run is given up; then once more in the next job."""
    while drill.jobs():
        attempt = drill.attempts() + 1
        drill.signal_rank_1(signal.SIGKILL)
        drill.wait(partial(_has_ended_or_stepped, drill, attempt), "the next attempt's step")
    assert "given up" in drill.output(), "the run is not given up"
    attempt = drill.attempts() + 1
    drill.submit()
    drill.wait(partial(_has_ended_or_stepped, drill, attempt), "a step of the next job")
    drill.strike()
    drill.signal_rank_1(signal.SIGKILL)


def _has_ended_or_stepped(drill: SlurmDrill, attempt: int) -> bool:
    return not drill.jobs() or _has_stepped(drill, attempt)


def _has_stepped(drill: SlurmDrill, attempt: int) -> bool:
    again = [event.time_ms for event in drill.events("restart")]
    return drill.attempts() >= attempt and len(again) >= attempt - 1 and drill.events("step")[-1].time_ms > again[-1]


AWAY = DiskFault("EIO", "reads", ROLES, 25, Moment("calls", 0))
UNCONNECTED = DiskFault("ENOTCONN", "all", ROLES, 20, Moment("calls", 0))
UNSAVED = DiskFault("wait", "writes", ROLES, 3600, Moment("calls", 0))
SLURM_FAULTS: dict[str, SlurmFault] = {
    "kill-9": SlurmFault(_rank_1(signal.SIGKILL)),
    "stopped": SlurmFault(_rank_1(signal.SIGSTOP)),
    "slurmd-killed": SlurmFault(_slurmd_killed),
    "spare-node": SlurmFault(
        partial(_lose_power, "n2"), partial(_give_power, "n2"), variables={"NODES": "2"}, sbatch=("--nodes=3",)
    ),
    # the node on which the job's script runs: Slurm itself requeues the job
    "first-node": SlurmFault(partial(_lose_power, "n1"), partial(_give_power, "n1")),
    # nothing happens to a run on a node that is drained; it is left out by the next start
    "drained": SlurmFault(
        _run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=drill"),
        _run("scontrol", "update", "NodeName=n2", "State=RESUME"),
    ),
    "requeue": SlurmFault(_requeued_and_edited),
    "cancelled": SlurmFault(_run("scancel", "JOB"), submitted_again=True),
    "asked-to-stop": SlurmFault(lambda drill, job: drill.ask_to_stop(job)),
    "exit-file": SlurmFault(_exit_file, variables={"CHAIN": "1"}, submitted_again=True),
    # jobs too short for the run, one behind the other
    "chain": SlurmFault(variables={"CHAIN": "1", "EXIT_MARGIN_MINUTES": "1"}, sbatch=("--time=2",)),
    "missing-data": SlurmFault(variables={"COM_DIR": "/none", "CHAIN": "1"}, most_attempts=1, goes_on=False),
    "second-submission": SlurmFault(_second_submission, refused=REFUSED_BESIDE, most_attempts=2),
    "finished-folder": SlurmFault(
        submitted_again=True, refused="holds a finished run (success); choose another folder", most_attempts=1
    ),
    "cancelled-chain": SlurmFault(_cancelled_chain, variables={"CHAIN": "1"}),
    "unwritable-folder": SlurmFault(_unwritable_folder),
    "folder-away-at-the-return": SlurmFault(_folder_away_at_the_return),
    "launcher-killed": SlurmFault(_launcher_killed),
    "controller-away": SlurmFault(_controller_away),
    "slurmstepd": SlurmFault(_slurmstepd),
    "slurmstepd-of-rank-0": SlurmFault(_daemon_of_rank_0),
    "launcher-stopped": SlurmFault(_launcher_stopped),
    "script-killed": SlurmFault(_script_killed),
    "batch-daemon-killed": SlurmFault(_batch_daemon_killed),
    "spare-then-first": SlurmFault(partial(_lose_two, ("n3", "n1")), variables={"NODES": "2"}, sbatch=("--nodes=3",)),
    "first-and-last": SlurmFault(partial(_lose_two, ("n1", "n2"))),
    "first-slurmd": SlurmFault(
        _first_daemon_killed, partial(_give_power, "n1"), variables={"NODES": "2"}, sbatch=("--nodes=3",)
    ),
    "checkpoints-away": SlurmFault(_disk_away, preloaded=("checkpoints", AWAY)),
    "disk-away": SlurmFault(_disk_away, preloaded=("", UNCONNECTED)),
    "killed-after-run-stop": SlurmFault(_killed_after_run_stop, preloaded=("summary.json", UNSAVED)),
    "sync-hangs": SlurmFault(prepare=_sync_hangs),
    "stopped-in-the-first-second": SlurmFault(lambda drill, job: drill.ask_to_stop(job), at_once=True),
    "stopped-before-the-margin": SlurmFault(
        lambda drill, job: drill.ask_to_stop(job), variables={"EXIT_MARGIN_MINUTES": "1"}, sbatch=("--time=14",)
    ),
    "given-up": SlurmFault(_given_up),
    "only-slurmd": SlurmFault(
        _first_daemon_killed,
        partial(_give_power, "n1"),
        sbatch=("--nodes=1", "--ntasks-per-node=2"),
    ),
}
"""By the names in docs/drills.md."""
