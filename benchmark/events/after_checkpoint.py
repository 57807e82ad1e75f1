"""Run a command of the user's after each checkpoint, for example to submit an evaluation or export the weights.

The command runs beside training, in a session of its own, with low priority and its output in a file. Training goes on
whether the command succeeds or fails; its outcome is noted (``after_checkpoint`` in events.jsonl).
"""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmark.config.run_config import Benchmark
from benchmark.events.event import Event

CLOSE_S = 5.0
"""Seconds that the end of a run waits for the command: long enough for an sbatch."""
NICENESS = 10
NOT_ITS_OWN = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS "
    "TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE ATTEMPT LAUNCH_ID LAUNCHED_S SUBMITTED_S"
).split()
"""Variables that tell a process its rank in the run. They are unset for the command, which has no rank: a PyTorch
program started by it would wait for the other ranks."""
SLURM_OF_THE_STEP = (
    "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_STEP_ID "
    "SLURM_STEPID SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE "
    "SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_VERBOSE SLURM_MEM_PER_NODE "
    "SLURM_MEM_PER_CPU SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_DISTRIBUTION SLURM_HINT"
).split()
"""Variables that srun set for this job step. They are unset, because an sbatch started by the command would inherit
them."""


class Notes(Protocol):
    """The log in which the outcome of the command is noted: the run's events."""

    def note(self, key: str, value: Any = None, **metadata: Any) -> None: ...


class AfterCheckpoint:
    """A sink that starts ``command`` (program and words) whenever a checkpoint has been written.

    One command runs at a time. When it ends, the command is started for the newest checkpoint written meanwhile.
    """

    name = "command after a checkpoint"

    def __init__(
        self,
        command: Sequence[str],
        run_dir: Path,
        benchmark: Benchmark,
        system: str,
        path_of: Callable[[Path, int], Path],
        *,
        close_s: float = CLOSE_S,
    ) -> None:
        """``system``: its name. ``path_of``: function of the run's folder and a number of steps that returns the
        checkpoint's path."""
        self._command, self._close_s, self._path_of = tuple(command), close_s, path_of
        self._run_dir, self._benchmark, self._system = run_dir, benchmark, system
        self.notes: Notes | None = None
        self._changed = threading.Condition()
        self._running: int | None = None
        """Steps of the checkpoint that the running command was started for."""
        self._waiting: int | None = None
        self._closed = False

    def write(self, event: Event) -> None:
        """Start the command, or queue the checkpoint behind a running one. Raises OSError if the command cannot be
        started."""
        if event.key != "checkpoint_written":
            return
        steps = event.metadata["steps"]
        with self._changed:
            if self._running is None:
                self._start(steps)
                return
            passed_over, self._waiting = self._waiting, steps
        if passed_over is not None:
            self._note(passed_over, "passed over: the one before it still ran when the next checkpoint came")

    def close(self) -> None:
        """Wait ``close_s`` seconds for the running command; leave it running if it takes longer."""
        with self._changed:
            self._changed.wait_for(lambda: self._running is None, self._close_s)
            self._closed = True
            running, waiting = self._running, self._waiting
        if running is not None:
            self._note(running, "left running at the end of the run")
        if waiting is not None:
            self._note(waiting, "not started: the run was at its end")

    def output(self, steps: int) -> Path:
        """Return the file with the command's output; if a checkpoint is written twice, the second output is
        appended."""
        return self._run_dir / "after_checkpoint" / f"step_{steps:08d}.log"

    def _start(self, steps: int) -> None:
        self.output(steps).parent.mkdir(exist_ok=True)
        unset = [word for name in (*NOT_ITS_OWN, *SLURM_OF_THE_STEP) for word in ("-u", name)]
        words = ["nice", "-n", str(NICENESS), "env", *unset, *self._variables(steps), *self._command]
        started = time.monotonic()
        with self.output(steps).open("ab") as output:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a signal for the run is none for it
            )
        self._running = steps
        threading.Thread(
            target=self._await, args=(process, steps, started), name="command after a checkpoint", daemon=True
        ).start()

    def _variables(self, steps: int) -> list[str]:
        run_dir = self._run_dir.absolute()
        values = {
            "CHECKPOINT_DIR": self._path_of(run_dir, steps),
            "CHECKPOINT_STEPS": steps,
            "CHECKPOINT_TOKENS": steps * self._benchmark.tokens_per_step,
            "CHECKPOINT_SAMPLES": steps * self._benchmark.global_batch_size,
            "RUN_DIR": run_dir,
            "RUN_CONFIG": run_dir / "config.json",
            "RUN_BENCHMARK": self._benchmark.name,
            "RUN_SYSTEM": self._system,
        }
        return [f"{name}={value}" for name, value in values.items()]

    def _await(self, process: "subprocess.Popen[bytes]", steps: int, started: float) -> None:
        status = process.wait()
        self._note(
            steps,
            "done" if status == 0 else "failed",
            status=status,
            seconds=time.monotonic() - started,
            output=str(self.output(steps)),
        )
        with self._changed:
            self._running, following = None, self._waiting
            self._waiting = None
            if following is not None and not self._closed:
                try:
                    self._start(following)
                except OSError as error:
                    self._note(following, f"not started: {error.strerror}")
            self._changed.notify_all()

    def _note(self, steps: int, outcome: str, **fields: Any) -> None:
        if self.notes is None:
            return
        self.notes.note("after_checkpoint", outcome, steps=steps, **fields)
        if outcome != "done":
            more = f", status {fields['status']}; see {fields['output']}" if fields else ""
            self.notes.note("message", f"the command after the checkpoint of {steps} steps: {outcome}{more}")
