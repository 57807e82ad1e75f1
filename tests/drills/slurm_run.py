"""A run of the rehearsal under a real Slurm, and what is seen of it."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.config.benchmarks import REHEARSALS
from benchmark.rehearsal.rehearse import CHECKPOINT_MEGATRON
from benchmark.run_record.attempt_folder import all_attempts, read_start
from benchmark.run_record.events.recorded_events import RecordedEvent, read_events
from benchmark.run_record.status.status_reading import read_status
from foundation.errors import InputError
from tests.drills.fuzz.disk_faults import CONTROL, SharedControl, build_library
from tests.drills.fuzz.drawn_faults import DiskFault
from tests.drills.slurm_cluster import SlurmCluster

SAVE_INTERVAL = 16
FAULT_AT = 24
"""Optimizer steps after which the fault comes: half way between two checkpoints."""
MICRO_BATCH = {"rehearsal": 4, "rehearsal_llama": 1}
"""Micro-batch sizes: steps of the shorter run take longer, so that it outlives a fault."""
STATUS_S = 2.0
LONGEST_S = 2700.0
"""Most seconds for a fault's consequence or a run's end: half an hour is the limit of several waits."""
FIXED = {
    "PRECISION": "bf16",
    "SEED": "7",
    "TRAIN_OPTIONS": f"--log-interval 8 --save-interval {SAVE_INTERVAL} --start-limit-s 300 --hang-floor-s 60",
    "OMP_WAIT_POLICY": "passive",
}
"""Variables of every job. Batch size and learning rates are the benchmark's own."""
DECISIVE = re.compile(
    r"attempt \d{4}: .*[;:]|saved and stopped|launcher|SIG|error:|Slurm|is lost|tried again|time is up|page caches"
)
"""Pattern of the lines of a job's log that tell a fault or a decision."""


@dataclass
class SlurmDrill:
    """A run under Slurm, and what was seen of it."""

    cluster: SlurmCluster
    benchmark: str
    inputs: Path
    """Folder of a rehearsal, with data and checkpoint."""
    code: Path
    """Checkout of which this run gets its own."""
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    sbatch: tuple[str, ...] = ("--nodes=2", "--ntasks-per-node=1")
    fault_s: float | None = None
    """When the fault came, in seconds since the epoch."""
    states: list[str] = field(default_factory=list)
    """States that the status told, one after another."""
    nodes: list[str] = field(default_factory=list)
    """Nodes of the first job, in Slurm's order."""
    disk: SharedControl | None = None
    """Faults of the disk that are preloaded into the job's processes."""

    @property
    def run_dir(self) -> Path:
        return self.folder / "log"

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    def submit(self) -> str:
        """The job's number."""
        if not self.checkout.exists():
            subprocess.run(["git", "clone", "--quiet", self.code, self.checkout], check=True)
        variables = {**self.cluster.environment, **FIXED, "BENCHMARK": self.benchmark}
        variables["TRAIN_OPTIONS"] += f" --micro-batch-size {MICRO_BATCH[self.benchmark]}"
        variables["COM_DIR"] = str(self.inputs / "dataset")
        if REHEARSALS[self.benchmark].start_iterations:
            variables["EXTERNAL_MODEL_CHECKPOINT_DIR"] = str(self.inputs / CHECKPOINT_MEGATRON)
        variables |= self.variables
        variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
        words = ["sbatch", "--parsable", f"--output={self.folder}/slurm_%j.out", *self.cluster.sbatch, *self.sbatch]
        words += ["run_gpt3.sh", str(self.run_dir), "/bpe", "none"]
        done = subprocess.run(words, cwd=self.checkout, env=variables, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def preload(self, below: str, *faults: DiskFault) -> None:
        """Have the processes of the jobs take faults of the disk below a path in LOG_DIR; :meth:`strike_disk` begins
        them."""
        self.disk = SharedControl(self.folder / "control", self.run_dir / below, faults)
        self.variables |= {"LD_PRELOAD": str(build_library(self.folder)), CONTROL: str(self.disk.path)}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note the states that the status tells until the block ends."""
        closing = threading.Event()

        def watch() -> None:
            while not closing.wait(STATUS_S):
                self.note_state()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            closing.set()
            thread.join()
            self.note_state()

    def note_state(self) -> None:
        try:
            state = read_status(self.run_dir).state
        except (InputError, OSError):
            return
        if self.states[-1:] != [state]:
            self.states.append(state)

    def first_words(self) -> str:
        """Return the first line of the jobs' log that tells a decision after the fault."""
        since = "" if self.fault_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.fault_s))
        logs = "".join(path.read_text(errors="replace") for path in sorted(self.run_dir.glob("slurm_*.out")))
        lines = [line for line in logs.splitlines() if line >= since and DECISIVE.search(line)]
        return lines[0] if lines else ""

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
        """Note that the fault comes now."""
        self.fault_s = time.time()

    def wait_for_end(self) -> None:
        """Until no job is running or waiting."""
        self.wait(lambda: not self.jobs(), "the end of the jobs")

    def jobs(self, *states: str) -> list[str]:
        """Return the numbers of the jobs in the queue; ``states``: of those in one of them alone."""
        return self.cluster.run("squeue", "-h", "-o", "%i", *(["-t", ",".join(states)] if states else [])).split()

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

    def signal(self, role: str, number: int) -> None:
        """Signal the processes of a role (node_processes.py): a rank's on its host in the latest attempt, others on the
        first node."""
        node = self.nodes[0]
        if role[-1].isdigit():
            start = read_start(all_attempts(self.run_dir)[-1])
            assert start is not None, "no attempt has begun"
            node = start.hosts[int(role.split()[-1])]
        self.cluster.signal(node, self.run_dir, role, number)

    def ask_to_stop(self, job: str) -> None:
        """Send SIGUSR2 to the job, as a person does."""
        self.cluster.run("scancel", "--batch", "--signal=USR2", job)
