"""The faults of a job under Slurm, as a table: how the job is submitted, what happens to it, what mends the cluster."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

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
    """Pattern of a line with which a job must have ended."""
    least_attempts: int = 1
    """With fewer the run has ended before its fault."""
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
                    drill.nodes = drill.cluster.nodes_of(job)
                    drill.strike()
                    self.act(drill, job)
                drill.wait_for_end()
            finally:
                if self.mend is not None:
                    self.mend(drill, job)
            if self.submitted_again:
                drill.submit()
                drill.wait_for_end()


def _signal(number: int, *roles: str) -> Act:
    """Signal processes of these roles, one after another."""

    def act(drill: SlurmDrill, _: str) -> None:
        for role in roles:
            drill.signal(role, number)

    return act


def _run(*words: str) -> Act:
    """Give Slurm a command; JOB stands for the number of the job."""

    def act(drill: SlurmDrill, job: str) -> None:
        drill.cluster.run(*(job if word == "JOB" else word for word in words))

    return act


def _slurmd_killed(drill: SlurmDrill, _: str) -> None:
    """The daemon of the second node dies, its processes go on; it is started again later."""
    drill.cluster.stop_daemon(drill.nodes[1])
    _wait_until_down(drill, drill.nodes[1])
    time.sleep(20)
    drill.cluster.start_daemon(drill.nodes[1])


def _wait_until_down(drill: SlurmDrill, node: str) -> None:
    drill.wait(lambda: "down" in drill.cluster.states()[node], f"node {node} down")


def _wait_until_idle(drill: SlurmDrill, node: str) -> None:
    drill.wait(lambda: drill.cluster.states()[node] == "idle", f"node {node} idle again")


def _lose_power(position: int, drill: SlurmDrill, _: str, pause_s: float = 0.0) -> None:
    """Cut the power of the job's node at this position."""
    drill.cluster.cut_power(drill.nodes[position], pause_s)


def _give_power(position: int, drill: SlurmDrill, _: str) -> None:
    drill.cluster.give_power(drill.nodes[position])
    _wait_until_idle(drill, drill.nodes[position])


def _drain(drill: SlurmDrill, _: str) -> None:
    drill.cluster.run("scontrol", "update", f"NodeName={drill.nodes[1]}", "State=DRAIN", "Reason=drill")


def _resume(drill: SlurmDrill, _: str) -> None:
    drill.cluster.run("scontrol", "update", f"NodeName={drill.nodes[1]}", "State=RESUME")


def _requeued_and_edited(drill: SlurmDrill, job: str) -> None:
    """The code is edited meanwhile: what runs is what ran."""
    for name in ("training/loop.py", "launch/keep_running.py"):
        (drill.checkout / "benchmark" / name).write_text("raise SystemExit('edited while the job was in the queue')\n")
    drill.cluster.run("scontrol", "requeue", job)


def _exit_file(drill: SlurmDrill, _: str) -> None:
    """A person ends run and chain by a file."""
    (drill.run_dir / "exit").touch()


def _second_submission(drill: SlurmDrill, _: str) -> None:
    """Another job into the same folder by mistake, and then a fault of the first. The second job is refused once it has
    seen for two minutes that the first renews its lease, or after the first one's end."""
    sbatch, drill.sbatch = drill.sbatch, ("--nodes=1", "--ntasks-per-node=1")  # a node is left for it
    drill.submit()
    drill.sbatch = sbatch
    drill.wait_for_step()
    drill.strike()
    drill.signal("rank 1", signal.SIGKILL)


def _cancelled_chain(drill: SlurmDrill, job: str) -> None:
    """The job that waits is cancelled, then this one is asked to stop: it comes through the queue itself, without the
    two minutes that Slurm holds a requeued job."""
    drill.cluster.run("scancel", "--state=PENDING", *[other for other in drill.jobs() if other != job])
    drill.ask_to_stop(job)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and "PENDING" not in drill.cluster.run("squeue", "-h", "-o", "%T"):
        time.sleep(1)
    drill.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)


def _folder_away_at_the_return(drill: SlurmDrill, job: str) -> None:
    """The job comes back from the queue while nothing can be written in the run's folder."""
    assert drill.disk is not None
    drill.cluster.run("scontrol", "requeue", job)
    drill.wait(lambda: bool(drill.jobs("PENDING")), "the queue")
    drill.disk.begin(0)
    _start_now(drill)


def _script_killed(drill: SlurmDrill, _: str) -> None:
    """The job's script and its launcher are killed: Slurm ends the job as failed, unless a sentinel sends it on."""
    drill.signal("script", signal.SIGSTOP)  # it does not see the launcher's end
    drill.signal("launcher", signal.SIGSTOP)
    drill.signal("script", signal.SIGKILL)
    with suppress(subprocess.CalledProcessError):  # Slurm was faster
        drill.signal("launcher", signal.SIGKILL)


def _slowed(drill: SlurmDrill, _: str) -> None:
    """Rank 1 stands still again and again, for less time than a hang: a short run does not end before its limit."""
    while drill.jobs("RUNNING") and drill.attempts() == 1:
        with suppress(subprocess.CalledProcessError):  # it has just ended
            drill.signal("rank 1", signal.SIGSTOP)
            time.sleep(40)
            drill.signal("rank 1", signal.SIGCONT)
        time.sleep(5)


def _refusing(drill: SlurmDrill) -> None:
    """Have scontrol refuse the job's orders as long as there is a file."""
    command = shutil.which("scontrol")
    _replaced("scontrol", f'sh -c \'[ ! -e {drill.folder}/refusing ] && exec {command} "$@"\' - "$@"', drill)


def _script_killed_unheard(drill: SlurmDrill, job: str) -> None:
    """The job's script is killed while scontrol refuses for four minutes: Slurm ends the job, the next one begins."""
    (drill.folder / "refusing").touch()
    _script_killed(drill, job)
    time.sleep(240)
    (drill.folder / "refusing").unlink()


def _then_start_now(act: Act) -> Act:
    """Act, and start the job at once when it has come into the queue."""

    def act_and_start(drill: SlurmDrill, job: str) -> None:
        act(drill, job)
        _start_now(drill)

    return act_and_start


def _start_now(drill: SlurmDrill) -> None:
    """Start a job that Slurm holds for two minutes after it requeued it."""
    if drill.wait_or_end(lambda: bool(drill.jobs("PENDING"))):
        for job in drill.jobs():
            drill.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)


def _lose_two(positions: tuple[int, int], drill: SlurmDrill, _: str) -> None:
    """Two nodes are lost, the one after the other has been left out of an attempt; they come back."""
    nodes = [drill.nodes[position] for position in positions]
    drill.cluster.cut_power(nodes[0])
    if positions[0] == 2:  # with the sentinel of a node that the run does not use
        _wait_until_down(drill, nodes[0])
    drill.cluster.cut_power(nodes[1])
    _wait_until_down(drill, nodes[1])
    for node in nodes:
        drill.cluster.give_power(node)
    _start_now(drill)


def _first_daemon_killed(drill: SlurmDrill, _: str) -> None:
    """The daemon of the first node dies, its processes and the launcher go on; it is started again after the run."""
    drill.cluster.stop_daemon(drill.nodes[0])
    _wait_until_down(drill, drill.nodes[0])


def _first_daemon_back(drill: SlurmDrill, _: str) -> None:
    drill.cluster.start_daemon(drill.nodes[0])
    _wait_until_idle(drill, drill.nodes[0])


def _controller_away(drill: SlurmDrill, _: str) -> None:
    """Slurm's controller is away for four minutes, and a rank dies meanwhile."""
    drill.cluster.stop_controller()
    drill.signal("rank 1", signal.SIGKILL)
    time.sleep(240)
    drill.cluster.start_controller()


def _disk_away(drill: SlurmDrill, _: str) -> None:
    """Calls below LOG_DIR, or of checkpoints alone, fail for a while, and a rank dies meanwhile."""
    assert drill.disk is not None
    drill.disk.begin(0)
    drill.signal("rank 1", signal.SIGKILL)


def _killed_after_run_stop(drill: SlurmDrill, _: str) -> None:
    """Rank 0 is killed while run_stop is in the log and the summary cannot be written yet."""
    assert drill.disk is not None
    drill.disk.begin(0)
    log = drill.run_dir / "result_0.txt"
    drill.wait(lambda: '"run_stop"' in log.read_text(), "run_stop")
    drill.strike()
    drill.signal("rank 0", signal.SIGKILL)
    drill.disk.end(0)


def _replaced(name: str, words: str, drill: SlurmDrill) -> None:
    """Have the job call other words than the command of this name."""
    folder = drill.folder / "bin"
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\nexec {words}\n")
    (folder / name).chmod(0o755)
    drill.variables["PATH"] = f"{folder}:{drill.cluster.environment['PATH']}"


def _given_up(drill: SlurmDrill, _: str) -> None:
    """Rank 1 is killed in each attempt before it saves, until the run is given up; then once more in the next job."""
    while drill.jobs():
        attempt = drill.attempts() + 1
        drill.signal("rank 1", signal.SIGKILL)
        drill.wait(partial(_has_ended_or_stepped, drill, attempt), "the next attempt's step")
    assert "given up" in drill.output(), "the run is not given up"
    attempt = drill.attempts() + 1
    drill.submit()
    drill.wait(partial(_has_ended_or_stepped, drill, attempt), "a step of the next job")
    drill.strike()
    drill.signal("rank 1", signal.SIGKILL)


def _has_ended_or_stepped(drill: SlurmDrill, attempt: int) -> bool:
    return not drill.jobs() or _has_stepped(drill, attempt)


def _has_stepped(drill: SlurmDrill, attempt: int) -> bool:
    again = [event.time_ms for event in drill.events("restart")]
    return drill.attempts() >= attempt and len(again) >= attempt - 1 and drill.events("step")[-1].time_ms > again[-1]


AWAY = DiskFault("EIO", "reads", ROLES, 25, Moment("calls", 0))
UNCONNECTED = DiskFault("ENOTCONN", "all", ROLES, 20, Moment("calls", 0))
UNWRITABLE = DiskFault("EPERM", "writes", ROLES, 20, Moment("calls", 0))
UNSAVED = DiskFault("wait", "writes", ROLES, 3600, Moment("calls", 0))
ONE_NODE = ("--nodes=1", "--ntasks-per-node=2")
SLURM_FAULTS: dict[str, SlurmFault] = {
    "kill-9": SlurmFault(_signal(signal.SIGKILL, "rank 1")),
    "stopped": SlurmFault(_signal(signal.SIGSTOP, "rank 1")),
    "slurmd-killed": SlurmFault(_slurmd_killed),
    "spare-node": SlurmFault(
        partial(_lose_power, 1), partial(_give_power, 1), variables={"NODES": "2"}, sbatch=("--nodes=3",)
    ),
    # the node on which the job's script runs: Slurm itself requeues the job
    "first-node": SlurmFault(partial(_lose_power, 0), partial(_give_power, 0)),
    # an srun is killed before its child, which kills the step of an srun that was killed
    "first-node-slowly": SlurmFault(partial(_lose_power, 0, pause_s=0.7), partial(_give_power, 0)),
    # nothing happens to a run on a node that is drained; it is left out by the next start
    "drained": SlurmFault(
        _drain,
        _resume,
    ),
    "requeue": SlurmFault(_requeued_and_edited),
    "cancelled": SlurmFault(_run("scancel", "JOB"), submitted_again=True),
    "asked-to-stop": SlurmFault(lambda drill, job: drill.ask_to_stop(job)),
    "exit-file": SlurmFault(_exit_file, variables={"CHAIN": "1"}, submitted_again=True),
    # jobs too short for the run, one behind the other
    "chain": SlurmFault(
        _slowed, variables={"CHAIN": "1", "EXIT_MARGIN_MINUTES": "1"}, sbatch=("--time=2",), least_attempts=2
    ),
    "missing-data": SlurmFault(
        variables={"COM_DIR": "/none", "CHAIN": "1"}, refused="none/c4_en", most_attempts=1, goes_on=False
    ),
    "second-submission": SlurmFault(_second_submission, at_once=True, refused="choose another folder", most_attempts=2),
    "finished-folder": SlurmFault(
        submitted_again=True, refused=r"holds a finished run \(success\); choose another folder", most_attempts=1
    ),
    "cancelled-chain": SlurmFault(_cancelled_chain, variables={"CHAIN": "1"}),
    "unwritable-folder": SlurmFault(_disk_away, preloaded=("", UNWRITABLE)),
    "folder-away-at-the-return": SlurmFault(_folder_away_at_the_return, preloaded=("", UNWRITABLE)),
    "launcher-killed": SlurmFault(_signal(signal.SIGKILL, "launcher")),
    "controller-away": SlurmFault(_controller_away),
    "slurmstepd": SlurmFault(_signal(signal.SIGKILL, "step daemon 1")),
    "slurmstepd-of-rank-0": SlurmFault(_signal(signal.SIGKILL, "step daemon 0")),
    "launcher-stopped": SlurmFault(_signal(signal.SIGSTOP, "launcher")),
    "script-killed": SlurmFault(_then_start_now(_script_killed)),
    "script-killed-unheard": SlurmFault(
        _script_killed_unheard, prepare=_refusing, variables={"CHAIN": "1"}, least_attempts=2
    ),
    "batch-daemon-killed": SlurmFault(_then_start_now(_signal(signal.SIGKILL, "batch daemon"))),
    "spare-then-first": SlurmFault(partial(_lose_two, (2, 0)), variables={"NODES": "2"}, sbatch=("--nodes=3",)),
    "first-and-last": SlurmFault(partial(_lose_two, (0, 1))),
    "first-slurmd": SlurmFault(
        _first_daemon_killed, _first_daemon_back, variables={"NODES": "2"}, sbatch=("--nodes=3",)
    ),
    "checkpoints-away": SlurmFault(_disk_away, preloaded=("checkpoints", AWAY)),
    "disk-away": SlurmFault(_disk_away, preloaded=("", UNCONNECTED)),
    "killed-after-run-stop": SlurmFault(_killed_after_run_stop, preloaded=("summary.json", UNSAVED)),
    "sync-hangs": SlurmFault(prepare=partial(_replaced, "sync", "sleep 100000")),
    # Slurm ends the job at its limit, before which nobody had saved
    "limit-reached": SlurmFault(
        _slowed, variables={"EXIT_MARGIN_MINUTES": "0"}, sbatch=("--time=2",), least_attempts=2
    ),
    "stopped-in-the-first-second": SlurmFault(lambda drill, job: drill.ask_to_stop(job), at_once=True),
    "stopped-before-the-margin": SlurmFault(
        lambda drill, job: drill.ask_to_stop(job), variables={"EXIT_MARGIN_MINUTES": "1"}, sbatch=("--time=14",)
    ),
    "given-up": SlurmFault(_given_up),
    "only-slurmd": SlurmFault(
        _first_daemon_killed,
        _first_daemon_back,
        sbatch=ONE_NODE,
    ),
}
"""By the names in docs/drills.md."""
