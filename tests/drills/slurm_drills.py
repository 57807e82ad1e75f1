"""Faults of the job under a real Slurm, injected into the rehearsal's run, and what came of them.

Needs root and slurm-wlm: the cluster is one of three nodes on this machine. Without them it says so. Each drill runs a
clone of the checkout, as committed.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.drills.judging import review_errors
from tests.drills.one_machine_cluster import OneMachineCluster, cannot_run
from tests.drills.slurm_faults import SLURM_FAULTS, SlurmFault
from tests.drills.slurm_run import SAVE_INTERVAL, SlurmDrill
from tests.support import REPOSITORY

HEAD = f"{'drill':<26}{'':<8}{'attempts':>9}{'jobs':>6}{'steps again':>13}{'s to loss':>11}"
UNDISTURBED = SlurmFault()


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


def judge(name: str, fault: SlurmFault, drill: SlurmDrill, undisturbed: list[Any]) -> Outcome:
    steps = drill.steps()
    facts = {"attempts": drill.attempts(), "jobs": len(list(drill.run_dir.glob("slurm_*.out")))}
    facts["steps_again"] = len(steps) - len(set(steps))
    seconds = drill.seconds_to_next_loss()
    if not fault.goes_on:
        lines = [line for line in drill.output().splitlines() if "none/c4_en" in line]
        passed = facts["attempts"] <= 1 and bool(lines) and "cancelled" in drill.output()
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
    if fault.refused not in drill.output():
        problems.append(f"no job said {fault.refused!r}")
    if fault.most_attempts is not None and facts["attempts"] > fault.most_attempts:
        problems.append("the job that was refused has made an attempt")
    if facts["steps_again"] > SAVE_INTERVAL * max(1, facts["attempts"] - 1):
        problems.append("more steps done again than a save interval")
    return Outcome(name, not problems, seconds=seconds, said=", ".join(problems) or "as undisturbed", **facts)


def row(one: Outcome) -> str:
    """A line of the table."""
    seconds = "-" if one.seconds is None else f"{one.seconds:.1f}"
    verdict = "FAILED" if not one.passed else "healed" if SLURM_FAULTS.get(one.name, UNDISTURBED).goes_on else "ended"
    return f"{one.name:<26}{verdict:<8}{one.attempts:>9}{one.jobs:>6}{one.steps_again:>13}{seconds:>11}  {one.said}"


def run_slurm_drills(names: Sequence[str], work: Path) -> bool:
    """Run the drills and print what came of them; whether all came out right, or none can be run here."""
    if (reason := cannot_run()) is not None:
        print(f"slurm: skipped: {reason}")
        return True
    work = work.resolve()
    inputs = work / "rehearsal"
    if not (inputs / "run_0" / "summary.json").exists():
        subprocess.run([REPOSITORY / "run_gpt3.sh"], env={**os.environ, "WORK_DIR": str(inputs)}, check=True)
    print(HEAD, flush=True)
    outcomes, undisturbed = [], []
    shutil.rmtree(work / "cluster", ignore_errors=True)
    with OneMachineCluster(work / "cluster", 3) as cluster:
        for name in ["undisturbed", *names]:
            shutil.rmtree(work / name, ignore_errors=True)
            (work / name).mkdir()
            drill = SlurmDrill(cluster, inputs, work / name)
            try:
                fault = SLURM_FAULTS.get(name, UNDISTURBED)
                fault.run(drill)
                if name == "undisturbed":
                    undisturbed = json.loads((drill.run_dir / "summary.json").read_text())["evaluations"]
                outcomes.append(judge(name, fault, drill, undisturbed))
            except (TimeoutError, OSError, ValueError, RuntimeError) as error:
                outcomes.append(Outcome(name, False, drill.attempts(), 0, 0, None, f"{type(error).__name__}: {error}"))
                for job in drill.jobs():
                    cluster.run("scancel", "--signal=KILL", "--full", job, check=False)
                    cluster.run("scancel", job, check=False)
            print(row(outcomes[-1]), flush=True)
    return all(one.passed for one in outcomes)
