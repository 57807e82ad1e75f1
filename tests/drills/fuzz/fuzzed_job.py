"""One job of run_gpt3.sh under the stand-in cluster, with its faults, from its submission to its end."""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.run_record.events.recorded_events import read_events
from benchmark.run_record.file_names import EVENTS_FILE
from benchmark.run_record.status.status_reading import read_status
from benchmark.training.process import run_process
from foundation.errors import InputError, run_command
from tests.benchmark.launch.slurm.stand_in_job import lean_checkout
from tests.drills.fuzz.disk_faults import CONTROL, SharedControl, attach_rank
from tests.drills.fuzz.drawn_faults import AnswerFault, DiskFault, JobFault, ProcessFault
from tests.drills.fuzz.short_limits import shorten_limits
from tests.drills.fuzz.stand_in_cluster import NODES, Away, StandInCluster
from tests.drills.injector import wrap

STEP_S = 0.1
"""Seconds by which a step is longer: most of a job is training then, and computes little."""
LOOK_S = 0.05
STATUS_S = 1.0
PYTHON3 = """#!/bin/bash
case "$*" in
  *"-m benchmark.launch"*) exec {python} "$@" ;;
  *interpreter_check*) printf 'nodes 2\\ndevices 1\\ndevice cpu\\n' ;;
esac
"""
"""Stands in for python3 on the job's node: only the launcher is real, ranks are forked."""
ROLE_LINES = {
    "script": ("bash ", "run_gpt3.sh"),
    "launcher": ("benchmark.launch job",),
    "watchdog 0": ("liveness.watchdog", " 0 n1"),
    "watchdog 1": ("liveness.watchdog", " 1 n2"),
    "sentinel": ("slurm.sentinel",),
    "command": ("slurm_command.py", "benchmark train"),
}


@dataclass(frozen=True)
class StatusSample:
    """What was so at one moment of the job, and what the status said."""

    time_s: float
    job_state: str
    num_live_ranks: int
    status: str


@dataclass
class EndedJob:
    """A job as it was left."""

    is_stuck: bool
    exit_status: int | None
    samples: Sequence[StatusSample]
    struck: Sequence[JobFault]
    """Faults that began."""
    windows: Sequence[tuple[float, float]]
    """Times since the epoch between which the disk or Slurm gave errors, or a process was stopped or killed."""
    seconds: float
    restarts: int
    unknown: Sequence[str]
    """Questions to the stand-in that it cannot answer."""
    calls: Mapping[str, int]


def fuzzed_rank(config: RunConfig, control: str, rank: int, variables: Mapping[str, str], paths: Sequence[str]) -> None:
    """A process of the run; its output goes to ``paths``."""
    for stream, path in enumerate(paths, 1):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, stream)
        os.close(handle)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # as job_steps.TASK does
        signal.signal(number, signal.SIG_IGN)
    os.environ.update(variables)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(len(NODES)), NODE_NAME=NODES[rank], OMP_NUM_THREADS="1"
    )
    attach_rank(control, rank)
    wrap("step", _longer)
    run_command(lambda: run_process(config))


def _longer(call: Any) -> Any:
    def step(*arguments: Any, **named: Any) -> Any:
        time.sleep(STEP_S)
        return call(*arguments, **named)

    return step


@dataclass
class FuzzedJob:
    """A job and its faults. ``number``: Slurm's of the job; ports depend on it. ``longest_s``: most seconds of a fault,
    to which the launcher's limits are proportional."""

    folder: Path
    config: RunConfig
    faults: Sequence[JobFault]
    number: int
    library: Path
    longest_s: float
    limit_s: float
    _windows: list[tuple[float, float]] = field(default_factory=list)
    _begun: set[int] = field(default_factory=set)
    _events_size: int = 0
    _steps: int = 0

    def run(self) -> EndedJob:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        checkout = lean_checkout(self.folder / "checkout")
        shorten_limits(checkout, self.longest_s)
        log_dir = self.config.run_dir
        self._control = SharedControl(self.folder / "control", log_dir, self.faults)
        self._cluster = StandInCluster(
            self.folder,
            str(self.number),
            fuzzed_rank,
            (self.config, str(self._control.path)),
            self._variables(checkout),
            ["bash", str(checkout / "run_gpt3.sh"), str(log_dir), "/bpe", "none"],
        )
        self._cluster.serve()
        python3 = self.folder / "bin" / "python3"
        python3.write_text(PYTHON3.format(python=sys.executable))
        python3.chmod(0o755)
        results, samples = list[int](), list[StatusSample]()
        job = threading.Thread(target=lambda: results.append(self._cluster.run_job()), daemon=True)
        self._started_s = time.monotonic()
        job.start()
        sampled_s = 0.0
        while job.is_alive() and (now_s := time.monotonic()) < self._started_s + self.limit_s:
            self._strike()
            if now_s > sampled_s + STATUS_S:
                sampled_s = now_s
                samples.append(self.sample())
            job.join(LOOK_S)
        is_stuck, seconds = job.is_alive(), time.monotonic() - self._started_s
        samples.append(self.sample())
        self._cluster.close()
        job.join(10)
        return EndedJob(
            is_stuck,
            results[0] if results else None,
            samples,
            [self.faults[number] for number in sorted(self._begun)],
            self._windows,
            seconds,
            self._cluster.restarts,
            self._cluster.unknown,
            self._control.calls(),
        )

    def sample(self) -> StatusSample:
        ranks = sum(len(step.live()) for step in self._cluster.steps)
        try:
            status = read_status(self.config.run_dir).state
        except InputError:
            status = "no run"
        return StatusSample(time.time(), self._cluster.state, ranks, status)

    def _variables(self, checkout: Path) -> dict[str, str]:
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER"))}
        return {
            **variables,
            "LD_PRELOAD": str(self.library),
            CONTROL: str(self._control.path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_WAIT_POLICY": "passive",
            "SLURM_JOB_ID": str(self.number),
            "SLURM_SUBMIT_DIR": str(checkout),
            "SLURM_JOB_NODELIST": ",".join(NODES),
            "SLURM_JOB_NUM_NODES": str(len(NODES)),
            "SLURM_NTASKS_PER_NODE": "1",
            "SLURMD_NODENAME": NODES[0],
            "BENCHMARK": "rehearsal",
            "COM_DIR": str(self.folder),
            "USE_BF16": "true",
        }

    def _strike(self) -> None:
        """Begin the faults whose moment has come, and note those that began within a process."""
        for number, fault in enumerate(self.faults):
            if number in self._begun:
                continue
            if self._control.began_s(number) is None and self._is_due(fault):
                if isinstance(fault, ProcessFault):
                    if not self._signal(fault):
                        continue  # there is no such process now
                elif isinstance(fault, AnswerFault):
                    self._cluster.away = Away(fault.how, fault.command, time.monotonic() + fault.seconds)
                self._control.begin(number)
            if self._control.began_s(number) is not None:
                self._begun.add(number)
                self._windows.append((time.time() - 1, time.time() + fault.seconds))
                if isinstance(fault, ProcessFault) and fault.act == "stop" and fault.seconds:
                    threading.Timer(fault.seconds, self._signal, (fault, signal.SIGCONT)).start()

    def _is_due(self, fault: JobFault) -> bool:
        moment = fault.moment
        if moment.kind == "seconds":
            return time.monotonic() - self._started_s >= moment.number
        if moment.kind == "step":
            return self._steps_done() >= moment.number
        within = isinstance(fault, DiskFault) or (isinstance(fault, ProcessFault) and fault.role == moment.role)
        return not within and self._control.has_come(moment)

    def _steps_done(self) -> int:
        """Return the number of steps in the events, which are read again when they have grown."""
        path = self.config.run_dir / EVENTS_FILE
        with suppress(OSError):
            if (size := path.stat().st_size) != self._events_size:
                self._events_size, self._steps = size, len(read_events(path).of("step"))
        return self._steps

    def _signal(self, fault: ProcessFault, number: int | None = None) -> bool:
        """Signal the processes of the role; return whether there is one."""
        number = number or (signal.SIGKILL if fault.act == "kill" else signal.SIGSTOP)
        role_words = ROLE_LINES.get(fault.role, (fault.role,))
        processes = [
            process
            for process, line in self._cluster.processes().items()
            if all(word in f"{line.strip()} " for word in role_words)
        ]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        return bool(processes)
