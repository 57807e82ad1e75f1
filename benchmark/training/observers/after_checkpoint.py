"""Run a command of the user's after each checkpoint, for example to submit an evaluation or export the weights.

The command runs while training continues, in a session of its own, with low priority and its output in a file. Training
goes on whether the command succeeds or fails; its outcome is noted (``after_checkpoint`` in events.jsonl).
"""

import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.file_names import CONFIG_FILE, after_checkpoint_log, checkpoint_path
from benchmark.training.observer import Observer

CLOSE_S = 5.0
"""Seconds that the end of a run waits for the command: long enough for an sbatch."""
NOT_ITS_OWN = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS "
    "TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE ATTEMPT LAUNCH_ID LEASE LAUNCHED_S SUBMITTED_S "
    "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_STEP_ID "
    "SLURM_STEPID SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE "
    "SLURM_CPU_BIND SLURM_CPU_BIND_LIST SLURM_CPU_BIND_TYPE SLURM_CPU_BIND_VERBOSE SLURM_MEM_PER_NODE "
    "SLURM_MEM_PER_CPU SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_DISTRIBUTION SLURM_HINT"
).split()
"""Variables of torchrun and of srun that describe this process's rank and job step. They are unset for the
command: a PyTorch program started by it would wait for the other ranks, and an sbatch would inherit the step's."""


class AfterCheckpoint(Observer):
    """Start ``command`` (program and words) whenever a checkpoint has been written.

    One command runs at a time. When it ends, the command is started for the newest checkpoint written meanwhile.
    """

    def __init__(
        self,
        command: Sequence[str],
        run_dir: Path,
        benchmark: Benchmark,
        system: str,
        events: EventLog,
        *,
        close_s: float = CLOSE_S,
    ) -> None:
        """``system``: its name."""
        self._command, self._close_s, self._events = tuple(command), close_s, events
        self._run_dir, self._benchmark, self._system = run_dir, benchmark, system
        self._changed = threading.Condition()
        self._running: int | None = None
        """Steps of the checkpoint that the running command was started for."""
        self._waiting: int | None = None
        self._closed = False

    def start_for(self, steps: int) -> None:
        """Start the command for the checkpoint after ``steps`` steps, or let it wait for the running one."""
        with self._changed:
            passed_over, self._waiting = self._waiting, steps
            if self._running is None:
                self._running, self._waiting = steps, None
                threading.Thread(target=self._run, args=[steps], name="after a checkpoint", daemon=True).start()
        if passed_over is not None:
            self._note(passed_over, "passed over: the former command still ran when the next checkpoint came")

    def end(self, end: StopReason) -> None:
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
        return after_checkpoint_log(self._run_dir, steps)

    def _run(self, newest_steps: int) -> None:
        """Run the command for one checkpoint after the other, in a thread: a slow disk does not reach training."""
        steps: int | None = newest_steps
        while steps is not None:
            try:
                self._run_once(steps)
            except OSError as error:
                self._note(steps, f"not started: {error.strerror}")
            with self._changed:
                steps, self._waiting = None if self._closed else self._waiting, None
                self._running = steps
                self._changed.notify_all()

    def _run_once(self, steps: int) -> None:
        started, unset = time.monotonic(), [word for name in NOT_ITS_OWN for word in ("-u", name)]
        self.output(steps).parent.mkdir(exist_ok=True)
        with self.output(steps).open("ab") as output:
            status = subprocess.run(
                ["nice", "-n", "10", "env", *unset, *self._variables(steps), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a signal for the run is none for it
                check=False,
            ).returncode
        seconds, output_path = time.monotonic() - started, str(self.output(steps))
        self._note(steps, "failed" if status else "done", status=status, seconds=seconds, output=output_path)

    def _variables(self, steps: int) -> list[str]:
        run_dir = self._run_dir.absolute()
        values = {
            "CHECKPOINT_DIR": checkpoint_path(run_dir, steps),
            "CHECKPOINT_STEPS": steps,
            "CHECKPOINT_TOKENS": steps * self._benchmark.tokens_per_step,
            "CHECKPOINT_SAMPLES": steps * self._benchmark.global_batch_size,
            "RUN_DIR": run_dir,
            "RUN_CONFIG": run_dir / CONFIG_FILE,
            "RUN_BENCHMARK": self._benchmark.name,
            "RUN_SYSTEM": self._system,
        }
        return [f"{name}={value}" for name, value in values.items()]

    def _note(self, steps: int, outcome: str, **fields: Any) -> None:
        self._events.note("after_checkpoint", outcome, steps=steps, **fields)
        if outcome != "done":
            details = f", status {fields['status']}; see {fields['output']}" if fields else ""
            self._events.note("message", f"the command after the checkpoint of {steps} steps: {outcome}{details}")
