"""Faults of the job under a real Slurm, injected into a rehearsal's run, and what came of them.

Needs root and slurm-wlm: the clusters are of three nodes on this machine. Without them it says so. Each drill runs a
clone of the checkout, as committed.
"""

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.config.benchmarks import REHEARSALS
from benchmark.judging.results.judged import JUDGED
from benchmark.judging.review.official.official_checkers import COMPLIANCE
from benchmark.judging.review.verdict import review
from benchmark.run_record.file_names import code_folder
from benchmark.run_record.status.status_reading import read_status
from tests.drills.one_machine_cluster import OneMachineCluster, cannot_run
from tests.drills.present_cluster import PresentCluster
from tests.drills.slurm_cluster import SlurmCluster
from tests.drills.slurm_faults import ONE_NODE, SLURM_FAULTS, SlurmFault
from tests.drills.slurm_run import SAVE_INTERVAL, SlurmDrill
from tests.support import REPOSITORY

HEAD = (
    f"{'drill':<28}{'':<8}{'attempts':>9}{'jobs':>6}{'steps again':>13}{'s to loss':>11}  "
    f"{'evaluations':<12}{'run_stop':<9}{'review':<27}{'compliance':<11}package"
)
UNDISTURBED = "undisturbed"
ON_ONE_NODE = f"{UNDISTURBED}-on-one-node"
"""The undisturbed run with which those on one node are compared: their processes have fewer threads."""
FIRST_SEED = 7


@dataclass
class Outcome:
    """A row of the table."""

    name: str
    attempts: int = 0
    jobs: int = 0
    steps_again: int = 0
    seconds: float | None = None
    """Seconds from the fault to the next loss."""
    evaluations: str = "-"
    run_stops: int = 0
    review: str = "-"
    compliance: str = "-"
    package: str = "-"
    status: str = ""
    """States that the status told, one after another."""
    words: str = ""
    """First line of the job's log about the fault."""
    problems: list[str] = field(default_factory=list)

    def lines(self) -> str:
        """Return the row, and a line each for the status, the job's log and the problems."""
        goes_on = SLURM_FAULTS.get(self.name, SlurmFault()).goes_on
        verdict = "FAILED" if self.problems else "healed" if goes_on else "ended"
        seconds = "-" if self.seconds is None else f"{self.seconds:.0f}"
        row = (
            f"{self.name:<28}{verdict:<8}{self.attempts:>9}{self.jobs:>6}{self.steps_again:>13}{seconds:>11}  "
            f"{self.evaluations:<12}{self.run_stops:<9}{self.review:<27}{self.compliance:<11}{self.package}"
        )
        details = [f"status: {self.status}", f"log: {self.words}", *(f"problem: {text}" for text in self.problems)]
        return "\n".join([row, *(f"    {text}" for text in details)])


class SlurmDrills:
    """The drills of a benchmark in a folder, and the undisturbed runs to compare and to package them with. All have the
    code of one clone."""

    def __init__(self, work: Path, benchmark: str) -> None:
        self._work, self._benchmark = work, benchmark
        self._inputs, self._code = work / "rehearsal", work / "code"
        self._lock = threading.Lock()
        self._finished: dict[str, SlurmDrill] = {}

    def prepare(self) -> None:
        if not (self._inputs / "run_0" / "summary.json").exists():
            variables = {**os.environ, "WORK_DIR": str(self._inputs), "BENCHMARK": self._benchmark}
            subprocess.run([REPOSITORY / "run_gpt3.sh"], env=variables, check=True)
        shutil.rmtree(self._code, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, self._code], check=True)

    def undisturbed(self, names: Sequence[str]) -> list[str]:
        """Return the names of the undisturbed runs with which these drills are compared and packaged."""
        is_on_one_node = any(SLURM_FAULTS[name].sbatch == ONE_NODE for name in names)
        return [UNDISTURBED, *([ON_ONE_NODE] if is_on_one_node else []), *self._companions()]

    def _companions(self) -> list[str]:
        """Return the names of the undisturbed runs of other seeds that make a result with the run of a drill."""
        judged = JUDGED[REHEARSALS[self._benchmark].mlperf_name]
        return [f"{UNDISTURBED}-{number}" for number in range(1, judged.runs)]

    def run(self, cluster: SlurmCluster, name: str) -> Outcome:
        """Run a drill, or an undisturbed run, to the end of its jobs."""
        folder = self._work / name
        drill = SlurmDrill(cluster, self._benchmark, self._inputs, self._code, folder)
        fault = SLURM_FAULTS.get(name, SlurmFault())
        is_ready = name.startswith(UNDISTURBED) and _is_finished(drill.run_dir, _commit(self._code))
        if not is_ready:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        if name == ON_ONE_NODE:
            fault = SlurmFault(sbatch=ONE_NODE)
        elif name.startswith(f"{UNDISTURBED}-"):
            drill.variables["SEED"] = str(FIRST_SEED + int(name.rpartition("-")[2]))
        outcome = Outcome(name)
        try:
            if not is_ready:
                fault.run(drill)
            self._judge(outcome, fault, drill)
            with self._lock:
                self._finished[name] = drill
        except Exception as error:
            outcome.problems.append(f"{type(error).__name__}: {error}")
            for job in drill.jobs():
                cluster.run("scancel", "--signal=KILL", "--full", job, check=False)
                cluster.run("scancel", job, check=False)
        outcome.status, outcome.words = ", ".join(drill.states), drill.first_words()
        return outcome

    def _judge(self, outcome: Outcome, fault: SlurmFault, drill: SlurmDrill) -> None:
        steps, problems = drill.steps(), outcome.problems
        outcome.attempts, outcome.jobs = drill.attempts(), len(list(drill.run_dir.glob("slurm_*.out")))
        outcome.steps_again, outcome.seconds = len(steps) - len(set(steps)), drill.seconds_to_next_loss()
        if not fault.goes_on:
            if (
                outcome.attempts > 1
                or not re.search(fault.refused, drill.output())
                or ("waits in the queue" in drill.output() and "cancelled" not in drill.output())
            ):
                problems.append("the run did not end at once with its reason")
            return
        log = drill.run_dir / "result_0.txt"
        outcome.run_stops = log.read_text().count('"run_stop"')
        if outcome.run_stops != 1:
            problems.append(f"{outcome.run_stops} run_stop")
        evaluations = _evaluations(drill)
        undisturbed = self._finished.get(ON_ONE_NODE if fault.sbatch == ONE_NODE else UNDISTURBED)
        if undisturbed is not None and not outcome.name.startswith(UNDISTURBED):
            outcome.evaluations = "equal" if evaluations == _evaluations(undisturbed) else "DIFFER"
            if outcome.evaluations != "equal":
                problems.append(f"evaluations {evaluations[-1]}, undisturbed {_evaluations(undisturbed)[-1]}")
        result = review([log])
        outcome.review = result.verdict
        errors = {finding.rule for subject in result.subjects for finding in subject.of("error")}
        if not result.passed:
            problems.append(f"review: {', '.join(sorted(errors))}")
        checks = [check for subject in result.subjects for check in subject.checks if check.tool == COMPLIANCE.name]
        outcome.compliance = ", ".join(check.outcome for check in checks)
        if (state := read_status(drill.run_dir).state) != "success":
            problems.append(f"status afterwards: {state}")
        if not re.search(fault.refused, drill.output()):
            problems.append(f"no job said {fault.refused!r}")
        if outcome.attempts < fault.least_attempts:
            problems.append("the run has ended before its fault")
        if fault.most_attempts is not None and outcome.attempts > fault.most_attempts:
            problems.append("the job that was refused has made an attempt")
        if outcome.steps_again > SAVE_INTERVAL * max(1, outcome.attempts - 1):
            problems.append("more steps done again than a save interval")

    def package(self, outcome: Outcome) -> None:
        """Package the run of a drill with undisturbed runs of other seeds, by the command, and note the verdict."""
        names = [outcome.name, *self._companions()]
        runs = [self._finished[name].run_dir for name in names if name in self._finished]
        fault = SLURM_FAULTS.get(outcome.name, SlurmFault())
        if len(runs) < len(names) or not fault.goes_on:
            return
        folder = self._work / outcome.name / "package"
        shutil.rmtree(folder, ignore_errors=True)
        for number, run_dir in enumerate(runs):
            # the runs of a rehearsal: result_N.txt in run_N
            shutil.copytree(run_dir, folder / f"run_{number}", ignore=shutil.ignore_patterns("checkpoints", "snapshot"))
        words = ["-m", "benchmark", "rehearse", self._benchmark, "--package", "--work-dir", str(folder)]
        process = subprocess.run([sys.executable, *words], cwd=self._code, capture_output=True, text=True, check=False)
        (folder / "package.log").write_text(process.stdout + process.stderr)
        heads = [line for line in process.stdout.splitlines() if line.startswith("=== rehearsal of a submission: ")]
        outcome.package = heads[-1].strip("= ").partition(": ")[2] if heads else f"status {process.returncode}"
        if process.returncode or not heads:
            outcome.problems.append(f"package: see {folder}/package.log")


def _commit(code: Path) -> str:
    words = ["git", "-C", str(code), "rev-parse", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _is_finished(run_dir: Path, commit: str) -> bool:
    """Return whether a run of this commit has ended there."""
    copied = code_folder(run_dir) / ".commit"
    return (run_dir / "summary.json").exists() and copied.read_text().strip() == commit


def _evaluations(drill: SlurmDrill) -> list[Any]:
    evaluations: list[Any] = json.loads((drill.run_dir / "summary.json").read_text())["evaluations"]
    return evaluations


def run_slurm_drills(
    names: Sequence[str], work: Path, benchmark: str, cluster_file: Path | None, *, at_once: int
) -> bool:
    """Run the drills and print their outcomes; return whether all came out right, or none can be run here.

    ``cluster_file``: of a cluster that is there already. Otherwise ``at_once`` clusters are started on this machine.
    """
    if cluster_file is not None:
        of_one_machine = [name for name in names if SLURM_FAULTS[name].preloaded is not None]
        print(*(f"{name}: skipped: its fault needs all nodes on one machine" for name in of_one_machine), sep="\n")
        names = [name for name in names if name not in of_one_machine]
    elif (reason := cannot_run()) is not None:
        print(f"slurm: skipped: {reason}")
        return True
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    drills = SlurmDrills(work, benchmark)
    drills.prepare()
    print(HEAD, flush=True)
    outcomes = []
    with ExitStack() as stack, ThreadPoolExecutor(1 if cluster_file else at_once) as pool:
        clusters = queue.Queue[SlurmCluster]()
        if cluster_file is not None:
            clusters.put(PresentCluster(cluster_file))
        for number in range(0 if cluster_file else at_once):
            shutil.rmtree(work / f"cluster_{number}", ignore_errors=True)
            clusters.put(stack.enter_context(OneMachineCluster(work / f"cluster_{number}", 3)))

        def run(name: str) -> Outcome:
            cluster = clusters.get()
            try:
                return drills.run(cluster, name)
            finally:
                clusters.put(cluster)

        for phase in (drills.undisturbed(names), names):
            for future in as_completed([pool.submit(run, name) for name in phase]):
                outcome = future.result()
                if phase is names:
                    drills.package(outcome)
                print(outcome.lines(), flush=True)
                outcomes.append(outcome)
    right = sum(not outcome.problems for outcome in outcomes)
    print(f"{right} of {len(outcomes)} came out right; runs in {work}")
    return right == len(outcomes)
