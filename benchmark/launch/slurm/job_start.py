"""Before a job's first attempt: check the interpreter, count the nodes, note where the job runs, plan the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmark.launch.keep_running import Refused, say
from benchmark.launch.slurm.job_steps import JobSteps
from benchmark.launch.slurm.nodes import ask

# The lowest priority, and no device: what is planned beside the run takes nothing from it. Half a file is none.
WRITE_PLAN = 'CUDA_VISIBLE_DEVICES= nice -n 19 "$@" >"$0.partial" && mv "$0.partial" "$0" || rm -f "$0.partial"'


def check_interpreter(steps: JobSteps, python: str, command: Sequence[str], container: str) -> int | None:
    """Return the number of nodes of the system, if it has one.

    Raises Refused, in one line, for what would make 512 processes fail the same way.
    """
    check = str(steps.code / "benchmark" / "preflight" / "interpreter_check.py")
    checking = steps.beside(python, check, *command)
    said = checking.communicate()[0].decode(errors="replace").splitlines()
    if checking.returncode:
        errors = [line[len("error: ") :] for line in said if line.startswith("error: ")]
        found = errors[0] if errors else f"{python} does not run (status {checking.returncode})"
        raise Refused(f"{found}, in CONTAINER {container}")
    counts = [line.split()[1] for line in said if line.startswith("nodes ")]
    return int(counts[-1]) if counts else None


def count_nodes(allocated: int, asked: int | None, of_system: int | None) -> int:
    """Return the number of nodes that the run takes: all, except those that were asked for as spare ones, or are a few
    more than the system's. Raises Refused if the job has too few."""
    needed = asked or allocated
    if not asked and of_system and 0 < 8 * (allocated - of_system) <= of_system:
        needed = of_system
    if needed > allocated:
        raise Refused(f"NODES={needed}, but the job has {allocated} nodes: sbatch --nodes={needed} or more")
    if needed < allocated:
        say(f"{needed} of {allocated} nodes are used, {allocated - needed} are spare")
    return needed


def note_surroundings(steps: JobSteps, run_dir: Path, python: str, number: str, nodes: Sequence[str]) -> None:
    """Record what the job runs on; facts that cannot be found out are left out, and stop nothing."""
    file = run_dir / "snapshot" / f"job_{number}_{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    asked: list[list[str]] = [["scontrol", "--version"], ["scontrol", "show", "job", number]]
    asked += [["sinfo", "--Node", "--long", f"--nodes={','.join(nodes)}"], ["scontrol", "show", "topology"]]
    with suppress(OSError):
        file.with_suffix(".txt").write_text("".join(f"{ask(*words)}\n" for words in asked), encoding="utf-8")
    snapshot = ("-m", "benchmark.machine.environment_snapshot", str(file.with_suffix(".json")))
    noting = steps.beside(python, *snapshot)
    noting.communicate()
    if noting.returncode:
        say(f"warning: {file.with_suffix('.json')} could not be written")


def write_plan(steps: JobSteps, run_dir: Path, python: str, benchmark: str) -> None:
    """Write plan.json, for the report, beside the run: nothing waits for it. A rehearsal's step is not planned."""
    file = run_dir / "plan.json"
    if not file.exists() and not benchmark.startswith("rehearsal"):
        with suppress(OSError):
            steps.beside("bash", "-c", WRITE_PLAN, str(file), python, *steps.benchmark("plan"), "--json")
