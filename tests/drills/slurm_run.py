"""A run of the rehearsal under a real Slurm, and what is seen of it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.run_record.events.recorded_events import RecordedEvent, read_events
from tests.drills.one_machine_cluster import OneMachineCluster
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

    def events(self, key: str) -> list[RecordedEvent]:
        return [event for event in read_events(self.run_dir / "events.jsonl") if event.key == key]

    def steps(self) -> list[int]:
        """Steps since the initial checkpoint, in the order in which they were done, those done again too."""
        return [int(event.number("steps") or 0) for event in self.events("step")]

    def wait_for_step(self, step: int = FAULT_AT) -> None:
        self.wait(lambda: max(self.steps(), default=0) >= step, f"step {step}")

    def wait(self, reached: Callable[[], bool], what: str, longest_s: float = LONGEST_S) -> None:
        deadline = time.monotonic() + longest_s
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} was not reached in {longest_s:g} s; see {self.folder}")
            time.sleep(0.3)

    def wait_or_end(self, reached: Callable[[], bool]) -> bool:
        """Wait until ``reached``, or until no job is left; return whether it was reached."""
        self.wait(lambda: reached() or not self.jobs(), "the fault's consequence")
        return reached()

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
        again = [event.time_ms / 1000 for event in self.events("restart")]
        began = min((time_s for time_s in again if time_s > self.fault_s), default=None)
        if began is None:
            return None
        losses = [event.time_ms / 1000 for event in self.events("step")]
        return min(time_s for time_s in losses if time_s > began) - self.fault_s

    def signal_rank_1(self, number: int) -> None:
        os.kill(self.rank_1(), number)

    def rank_1(self) -> int:
        """Return the process id."""
        (process,) = self.cluster.processes_of_rank(1, self.run_dir)
        return process

    def ask_to_stop(self, job: str) -> None:
        """Send SIGUSR2 to the job, as Slurm does before the end (--signal=B:USR2@900)."""
        self.cluster.run("scancel", "--batch", "--signal=USR2", job)
