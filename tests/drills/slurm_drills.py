"""Faults of the job under a real Slurm, injected into the rehearsal's run.

Needs root and slurm-wlm: the cluster is one of three nodes on this machine. Without them it says so. Each drill runs a
clone of the checkout, as committed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.drills.judging import review_errors
from tests.drills.one_machine_cluster import OneMachineCluster, cannot_run
from tests.support import REPOSITORY

SAVE_INTERVAL = 16
FAULT_AT = 40
"""Optimizer steps after which the fault comes: half way between two checkpoints."""
LONGEST_S = 900.0
FIXED = {
    "BENCHMARK": "rehearsal",
    "SYSTEM": "cpu_p2",
    "USE_BF16": "true",
    "SEED": "7",
    "EXTERNAL_GBS": "16",
    "GBS": "16",
    "LR": "1e-3",
    "MIN_LR": "1e-4",
    "TRAIN_OPTIONS": f"--micro-batch-size 4 --log-interval 8 --save-interval {SAVE_INTERVAL}",
    "OMP_WAIT_POLICY": "passive",
}


@dataclass
class SlurmDrill:
    """A run under Slurm, and what was seen of it."""

    cluster: OneMachineCluster
    inputs: Path
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    sbatch: tuple[str, ...] = ("--nodes=2", "--ntasks-per-node=1")
    fault_s: float | None = None
    """When the fault came, in seconds since the epoch."""
    refused: str = ""
    """A line that one of its jobs must have ended with."""

    @property
    def run_dir(self) -> Path:
        return self.folder / "log"

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    def submit(self) -> str:
        """The job's number."""
        if not self.checkout.exists():
            subprocess.run(["git", "clone", "--quiet", REPOSITORY, self.checkout], check=True)
        variables = {
            **self.cluster.environment,
            **FIXED,
            "COM_DIR": str(self.inputs / "dataset"),
            "EXTERNAL_MODEL_CHECKPOINT_DIR": str(self.inputs / "checkpoint_megatron_bf16"),
            **self.variables,
        }
        variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
        words = ["sbatch", "--parsable", f"--output={self.folder}/slurm_%j.out", *self.sbatch, "run_gpt3.sh"]
        words += [str(self.run_dir), "/bpe", "none"]
        done = subprocess.run(words, cwd=self.checkout, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def events(self, key: str) -> list[dict[str, Any]]:
        try:
            lines = (self.run_dir / "events.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            if f'"{key}"' in line:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # cut off by the fault
                if event["key"] == key:
                    found.append(event)
        return found

    def steps(self) -> list[int]:
        """Steps since the initial checkpoint, in the order in which they were done, those done again too."""
        return [int(event["steps"]) for event in self.events("step")]

    def wait_for_step(self, step: int = FAULT_AT) -> None:
        self.wait(lambda: max(self.steps(), default=0) >= step, f"step {step}")

    def wait(self, reached: Callable[[], bool], what: str, longest_s: float = LONGEST_S) -> None:
        deadline = time.monotonic() + longest_s
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} was not reached in {longest_s:g} s; see {self.folder}")
            time.sleep(0.3)

    def strike(self) -> None:
        """The fault comes now."""
        self.fault_s = time.time()

    def wait_for_end(self) -> None:
        """Until no job is running or waiting."""
        self.wait(lambda: not self.jobs(), "the end of the jobs")

    def jobs(self) -> list[str]:
        return self.cluster.run("squeue", "-h", "-o", "%i").split()

    def output(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("slurm_*.out")))

    def attempts(self) -> int:
        return len(list((self.run_dir / "attempts").glob("[0-9]*")))

    def seconds_to_next_loss(self) -> float | None:
        """From the fault to the first step of the next attempt."""
        if self.fault_s is None:
            return None
        again = [event["time_ms"] / 1000 for event in self.events("restart")]
        began = min((time_s for time_s in again if time_s > self.fault_s), default=None)
        if began is None:
            return None
        losses = [float(event["time_ms"]) / 1000 for event in self.events("step")]
        return min(time_s for time_s in losses if time_s > began) - self.fault_s


def kill_9(drill: SlurmDrill) -> None:
    drill.submit()
    drill.wait_for_step()
    (process,) = drill.cluster.processes_of_rank(1, drill.run_dir)
    drill.strike()
    os.kill(process, signal.SIGKILL)
    drill.wait_for_end()


def stopped(drill: SlurmDrill) -> None:
    drill.submit()
    drill.wait_for_step()
    (process,) = drill.cluster.processes_of_rank(1, drill.run_dir)
    drill.strike()
    os.kill(process, signal.SIGSTOP)
    drill.wait_for_end()


def slurmd_killed(drill: SlurmDrill) -> None:
    """The daemon of the second node dies, its processes go on; it is started again later."""
    drill.submit()
    drill.wait_for_step()
    drill.strike()
    drill.cluster.kill_daemon("slurmd-n2")
    drill.wait(lambda: "down" in drill.cluster.states()["n2"], "node n2 down")
    time.sleep(20)
    drill.cluster.start("n2")
    drill.wait_for_end()


def spare_node(drill: SlurmDrill) -> None:
    """Three nodes for a run on two; the second loses its power."""
    drill.variables["NODES"] = "2"
    drill.sbatch = ("--nodes=3", "--ntasks-per-node=1")
    drill.submit()
    drill.wait_for_step()
    drill.strike()
    drill.cluster.kill_node("n2")
    try:
        drill.wait_for_end()
    finally:
        drill.cluster.start("n2")
        drill.wait(lambda: drill.cluster.states()["n2"] == "idle", "node n2 idle again")


def first_node(drill: SlurmDrill) -> None:
    """The node on which the job's script runs loses its power: Slurm itself requeues the job."""
    drill.submit()
    drill.wait_for_step()
    drill.strike()
    drill.cluster.kill_node("n1")
    try:
        drill.wait_for_end()
    finally:
        drill.cluster.start("n1")
        drill.wait(lambda: drill.cluster.states()["n1"] == "idle", "node n1 idle again")


def drained(drill: SlurmDrill) -> None:
    """Nothing happens to a run on a node that is drained; it is left out by the next start."""
    drill.submit()
    drill.wait_for_step()
    drill.cluster.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=drill")
    try:
        drill.wait_for_end()
    finally:
        drill.cluster.run("scontrol", "update", "NodeName=n2", "State=RESUME")


def requeue(drill: SlurmDrill) -> None:
    """The code is edited meanwhile: what runs is what ran."""
    job = drill.submit()
    drill.wait_for_step()
    edited = drill.checkout / "benchmark" / "training" / "loop.py"
    edited.write_text("raise SystemExit('edited while the job was in the queue')\n")
    (drill.checkout / "benchmark" / "launch" / "keep_running.py").write_text("raise SystemExit(1)\n")
    drill.strike()
    drill.cluster.run("scontrol", "requeue", job)
    drill.wait_for_end()


def cancelled(drill: SlurmDrill) -> None:
    """scancel ends the job for good; the same command goes on."""
    job = drill.submit()
    drill.wait_for_step()
    drill.strike()
    drill.cluster.run("scancel", job)
    drill.wait_for_end()
    drill.submit()
    drill.wait_for_end()


def chain(drill: SlurmDrill) -> None:
    """Jobs too short for the run, one behind the other."""
    drill.variables |= {"CHAIN": "1", "EXIT_MARGIN_MINUTES": "1"}
    drill.sbatch = (*drill.sbatch, "--time=2")
    drill.submit()
    drill.wait_for_end()


def asked_to_stop(drill: SlurmDrill) -> None:
    """SIGUSR2 to the job, as Slurm sends it before the end (--signal=B:USR2@900): saved, and back to the queue."""
    job = drill.submit()
    drill.wait_for_step()
    drill.strike()
    drill.cluster.run("scancel", "--batch", "--signal=USR2", job)
    drill.wait_for_end()


def exit_file(drill: SlurmDrill) -> None:
    """A person ends run and chain by a file; without it the same command goes on."""
    drill.variables["CHAIN"] = "1"
    drill.submit()
    drill.wait_for_step()
    drill.strike()
    (drill.run_dir / "exit").touch()
    drill.wait_for_end()
    drill.submit()
    drill.wait_for_end()


def missing_data(drill: SlurmDrill) -> None:
    drill.variables |= {"COM_DIR": str(drill.folder / "none"), "CHAIN": "1"}
    drill.submit()
    drill.wait_for_end()


def second_submission(drill: SlurmDrill) -> None:
    """Another job into the same folder by mistake, and then a fault of the first: the second is refused."""
    drill.submit()
    drill.wait_for_step()
    drill.sbatch = ("--nodes=1", "--ntasks-per-node=1")  # a node is left for it
    drill.submit()
    drill.refused = "runs there; end it first, or choose another folder"
    drill.wait(lambda: drill.refused in drill.output(), "the refusal")
    (process,) = drill.cluster.processes_of_rank(1, drill.run_dir)
    drill.strike()
    os.kill(process, signal.SIGKILL)
    drill.wait_for_end()


def finished_folder(drill: SlurmDrill) -> None:
    """A job into the folder of a run that has ended is refused, and changes nothing."""
    drill.submit()
    drill.wait_for_end()
    drill.submit()
    drill.refused = "holds a finished run (success); choose another folder"
    drill.wait_for_end()


def cancelled_chain(drill: SlurmDrill) -> None:
    """The job that waits is cancelled, then this one is asked to stop: it comes through the queue itself."""
    drill.variables["CHAIN"] = "1"
    job = drill.submit()
    drill.wait_for_step()
    drill.cluster.run("scancel", "--state=PENDING", *[other for other in drill.jobs() if other != job])
    asked_again(drill, job)


def asked_again(drill: SlurmDrill, job: str) -> None:
    """SIGUSR2; the job does not wait for the two minutes that Slurm holds a requeued one."""
    drill.strike()
    drill.cluster.run("scancel", "--batch", "--signal=USR2", job)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and "PENDING" not in drill.cluster.run("squeue", "-h", "-o", "%T"):
        time.sleep(1)
    drill.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
    drill.wait_for_end()


def unwritable_folder(drill: SlurmDrill) -> None:
    """Nothing can be made in the run's folder for 20 s (EPERM), and a rank dies meanwhile."""
    drill.submit()
    drill.wait_for_step()
    (process,) = drill.cluster.processes_of_rank(1, drill.run_dir)
    folders = [drill.run_dir, drill.run_dir / "attempts", *(drill.run_dir / "attempts").iterdir()]
    subprocess.run(["chattr", "+i", *folders], check=True)
    drill.strike()
    os.kill(process, signal.SIGKILL)
    time.sleep(20)
    subprocess.run(["chattr", "-i", *folders], check=True)
    drill.wait_for_end()


def slurmstepd(drill: SlurmDrill) -> None:
    """The daemon of a node's step dies: srun sends SIGTERM to the other ranks, which is no order to stop."""
    drill.submit()
    drill.wait_for_step()
    (process,) = drill.cluster.processes_of_rank(1, drill.run_dir)
    drill.strike()
    os.kill(int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    drill.wait_for_end()


SLURM_DRILLS: dict[str, Callable[[SlurmDrill], None]] = {
    "kill-9": kill_9,
    "stopped": stopped,
    "slurmd-killed": slurmd_killed,
    "spare-node": spare_node,
    "first-node": first_node,
    "drained": drained,
    "requeue": requeue,
    "cancelled": cancelled,
    "asked-to-stop": asked_to_stop,
    "exit-file": exit_file,
    "chain": chain,
    "missing-data": missing_data,
    "second-submission": second_submission,
    "finished-folder": finished_folder,
    "cancelled-chain": cancelled_chain,
    "unwritable-folder": unwritable_folder,
    "slurmstepd": slurmstepd,
}


@dataclass(frozen=True)
class Outcome:
    name: str
    passed: bool
    attempts: int
    jobs: int
    steps_again: int
    seconds: float | None
    """To the next loss."""
    said: str


def judge(name: str, drill: SlurmDrill, undisturbed: list[Any]) -> Outcome:
    steps = drill.steps()
    facts = {"attempts": drill.attempts(), "jobs": len(list(drill.run_dir.glob("slurm_*.out")))}
    facts["steps_again"] = len(steps) - len(set(steps))
    seconds = drill.seconds_to_next_loss()
    if name == "missing-data":
        lines = [line for line in drill.output().splitlines() if "none/c4_en" in line]
        passed = drill.attempts() <= 1 and bool(lines) and "cancelled" in drill.output()
        return Outcome(name, passed, seconds=None, said=lines[-1] if lines else "no word", **facts)
    problems = []
    log = (drill.run_dir / "result_0.txt").read_text()
    if (count := log.count('"run_stop"')) != 1:
        problems.append(f"{count} run_stop")
    summary = json.loads((drill.run_dir / "summary.json").read_text())
    if undisturbed and summary["evaluations"] != undisturbed:
        problems.append(f"evaluations {summary['evaluations'][-1]}, undisturbed {undisturbed[-1]}")
    if errors := review_errors(drill.run_dir / "result_0.txt"):
        problems.append(f"review: {', '.join(sorted(errors))}")
    if drill.refused and drill.refused not in drill.output():
        problems.append(f"no job said {drill.refused!r}")
    if drill.refused and facts["attempts"] > (1 if name == "finished-folder" else 2):
        problems.append("the job that was refused has made an attempt")
    if facts["steps_again"] > SAVE_INTERVAL * max(1, facts["attempts"] - 1):
        problems.append("more steps done again than a save interval")
    return Outcome(name, not problems, seconds=seconds, said=", ".join(problems) or "as undisturbed", **facts)


def table(outcomes: Sequence[Outcome]) -> str:
    lines = [f"{'drill':<15}{'':<8}{'attempts':>9}{'jobs':>6}{'steps again':>13}{'s to loss':>11}  "]
    for one in outcomes:
        seconds = "-" if one.seconds is None else f"{one.seconds:.1f}"
        verdict = "healed" if one.passed else "FAILED"
        if one.name == "missing-data" and one.passed:
            verdict = "ended"
        lines.append(
            f"{one.name:<15}{verdict:<8}{one.attempts:>9}{one.jobs:>6}{one.steps_again:>13}{seconds:>11}  {one.said}"
        )
    return "\n".join(lines)


def run_slurm_drills(names: Sequence[str], work: Path) -> bool:
    """Run the drills and print what came of them; whether all came out right, or none can be run here."""
    if (reason := cannot_run()) is not None:
        print(f"slurm: skipped: {reason}")
        return True
    work = work.resolve()
    inputs = work / "rehearsal"
    if not (inputs / "run_0" / "summary.json").exists():
        subprocess.run([REPOSITORY / "run_gpt3.sh"], env={**os.environ, "WORK_DIR": str(inputs)}, check=True)
    outcomes, undisturbed = [], []
    shutil.rmtree(work / "cluster", ignore_errors=True)
    with OneMachineCluster(work / "cluster", 3) as cluster:
        for name in ["undisturbed", *names]:
            shutil.rmtree(work / name, ignore_errors=True)
            (work / name).mkdir()
            drill = SlurmDrill(cluster, inputs, work / name)
            try:
                if name == "undisturbed":
                    drill.submit()
                    drill.wait_for_end()
                    undisturbed = json.loads((drill.run_dir / "summary.json").read_text())["evaluations"]
                else:
                    SLURM_DRILLS[name](drill)
                outcomes.append(judge(name, drill, undisturbed))
            except (TimeoutError, OSError, ValueError, RuntimeError) as error:
                outcomes.append(Outcome(name, False, drill.attempts(), 0, 0, None, f"{type(error).__name__}: {error}"))
                for job in drill.jobs():
                    cluster.run("scancel", "--signal=KILL", "--full", job, check=False)
                    cluster.run("scancel", job, check=False)
            print(table(outcomes[-1:]).splitlines()[1], flush=True)
    print(table(outcomes))
    return all(one.passed for one in outcomes)
