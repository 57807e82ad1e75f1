"""The job of run_gpt3.sh: which nodes an attempt takes, how srun starts it, and what ends it."""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.launch.attempt_folder import ALARM, newest_saved
from benchmark.launch.keep_running import Refused, RunPlace, alone_in, environment_of, keep_running, say
from benchmark.launch.next_attempt import INTERRUPTED, Decision
from benchmark.launch.slurm.nodes import (
    ONE_PER_NODE,
    Nodes,
    ask,
    host_names,
    is_running,
    seconds_left,
    submitted_s,
)
from benchmark.launch.slurm.queue import cancel_waiting, go_on_later, queue_next_job
from benchmark.launch.slurm.snapshot import run_from_snapshot

LOOK_S = 1.0
"""Between looks at the attempt's alarm."""
ASK_S = 60.0
"""Between questions about the job's time."""
ALARM_S = 240.0
"""After an alarm srun ends, by itself or not; it waits 60 s for its processes."""
SENTINEL_LOOK_S = 20
SLURMS_WARNING_S = 17 * 60
"""Slurm's own warning (--signal=B:USR2@900) comes 15 to 16 minutes before the end."""
TO_BE_REQUEUED_S = 300
# The lowest priority, and no device: what is planned beside the run takes nothing from it. Half a file is none.
WRITE_PLAN = 'CUDA_VISIBLE_DEVICES= nice -n 19 "$@" >"$0.partial" && mv "$0.partial" "$0" || rm -f "$0.partial"'
DROP_CACHES = "sync && (echo 3 >/proc/sys/vm/drop_caches || sudo -n sysctl -q vm.drop_caches=3)"
# Slurm starts one process per device; what torchrun would tell it, it gets from Slurm's own variables. Signals that ask
# for saving end no process that cannot listen yet.
TASK = (
    'trap "" USR1 USR2; export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS; '
    'export NODE_NAME=$SLURMD_NODENAME; exec "$@"'
)


@dataclass
class SlurmJob(RunPlace):
    """A job. ``options``: those of ``python3 -m benchmark.launch``."""

    options: argparse.Namespace
    _srun: subprocess.Popen[bytes] | None = None
    _sentinel: subprocess.Popen[bytes] | None = None
    _sentinel_on: str = ""
    _started: int = 0
    """Attempts of this job so far."""
    _excluded: list[str] = field(default_factory=list)
    """Nodes to leave out for what happened on them."""
    _used: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        given = self.options
        self.run_dir: Path = given.run_dir
        self.code: Path = given.code
        self.number = os.environ.get("SLURM_JOB_ID", "0")
        self.name = f"job {self.number}"
        self.here = os.environ.get("SLURMD_NODENAME", "")
        self.command: list[str] = given.command
        self.trains = self.command[0] == "train"
        self.needed = given.nodes or int(os.environ.get("SLURM_JOB_NUM_NODES") or 64)
        self.nodes = Nodes(self.number, [])
        self._bind = [f"--cpu-bind={given.cpu_bind}"]
        self._gpus = self._gpu_options("")

    # --- what srun is told

    def srun_line(self) -> list[str]:
        devices, cores = self.options.devices, os.environ.get("SLURM_CPUS_PER_TASK")
        words = ["srun", "--kill-on-bad-exit=1", "--wait=60", "--overlap", "--no-kill=off", f"--nodes={self.needed}"]
        words += [f"--ntasks={self.needed * devices}", f"--ntasks-per-node={devices}", "--distribution=block"]
        words += [f"--nodelist={','.join(self._used)}"] if self._used else []
        words += self._bind + ([f"--cpus-per-task={cores}"] if cores else []) + self._gpus + self._in_container()
        return [*words, "bash", "-c", TASK, "-", self.options.python, "-u", *self._benchmark(self.command[0])]

    def _benchmark(self, command: str) -> list[str]:
        """A command about this run, as Python's arguments."""
        sizes = ["--nodes", str(self.needed), "--devices-per-node", str(self.options.devices)]
        return ["-m", "benchmark", command, self.command[1], *sizes, *self.command[2:]]

    def _gpu_options(self, first_node: str) -> list[str]:
        """What a step needs to get the job's GPUs. Without it a step of a job that has a node to itself sees none,
        though the job has them all; where Slurm knows of no GPUs it is refused."""
        devices = self.options.devices
        if os.environ.get("SLURM_GPUS_ON_NODE") or os.environ.get("SLURM_JOB_GPUS"):
            # steps inherit it where each task has its own
            return [] if os.environ.get("SLURM_GPUS_PER_TASK") else [f"--gpus-per-node={devices}"]
        if " Gres=gpu" in first_node or ",gpu" in first_node:
            say(f"warning: the nodes have GPUs that the job did not get: sbatch --gpus-per-node={devices}")
        return []

    def _in_container(self) -> list[str]:
        if self.options.container == "none":
            return []
        code = [] if self.run_dir in self.code.parents else [self.code]
        mounts = ",".join(f"{path}:{path}" for path in (*code, self.run_dir, *self.options.mount))
        # Under its name the container stays on the nodes until the job ends: the next attempt does not unpack it again.
        words = ["--container-image", self.options.container, "--container-name", f"gpt3_{self.number}"]
        return [*words, "--container-mounts", mounts, "--container-workdir", str(self.code)]

    def _one_process(self, *words: str) -> subprocess.Popen[bytes]:
        """Start one on this node, in the container where there is one."""
        before: list[str] = []
        if self.options.container != "none":
            where = ["--job-name=beside", "--nodes=1", "--ntasks=1", f"--nodelist={self.here}"]
            before = ["srun", *ONE_PER_NODE, *where, *self._gpus, *self._in_container()]
        quiet = subprocess.DEVNULL
        return subprocess.Popen([*before, *words], cwd=self.code, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)

    # --- before the first attempt

    def prepare(self) -> None:
        """What all attempts have in common. Raises Refused."""
        self.nodes = Nodes(self.number, host_names(os.environ.get("SLURM_JOB_NODELIST", "")))
        plugins = [line for line in ask("scontrol", "show", "config").splitlines() if line.startswith("TaskPlugin ")]
        if not any(word in line for line in plugins for word in ("affinity", "cgroup")):
            self._bind = []  # srun complains where it cannot bind processes to cores
        self._gpus = self._gpu_options(ask("scontrol", "--oneliner", "show", "node", *self.nodes.names[:1]))
        self._count_nodes(self._check_interpreter())

    def _check_interpreter(self) -> int | None:
        """The number of nodes of the system, where it has one. What would make 512 processes fail the same way is said
        once, in a line."""
        python = self.options.python
        check = str(self.code / "benchmark" / "preflight" / "interpreter_check.py")
        checking = self._one_process(python, check, *self.command)
        said = checking.communicate()[0].decode(errors="replace").splitlines()
        if checking.returncode:
            errors = [line[len("error: ") :] for line in said if line.startswith("error: ")]
            found = errors[0] if errors else f"{python} does not run (status {checking.returncode})"
            raise Refused(f"{found}, in CONTAINER {self.options.container}")
        counts = [line.split()[1] for line in said if line.startswith("nodes ")]
        return int(counts[-1]) if counts else None

    def _count_nodes(self, of_system: int | None) -> None:
        """All nodes are used, but those that were asked for as spare ones, or are a few beyond the system's."""
        allocated, asked = len(self.nodes.names), self.options.nodes
        self.needed = asked or allocated
        if not asked and of_system and 0 < 8 * (allocated - of_system) <= of_system:
            self.needed = of_system
        if self.needed > allocated:
            needed = self.needed
            raise Refused(f"NODES={needed}, but the job has {allocated} nodes: sbatch --nodes={needed} or more")
        if self.needed < allocated:
            say(f"{self.needed} of {allocated} nodes are used, {allocated - self.needed} are spare")

    def note_surroundings(self) -> None:
        """What the job runs on; what cannot be found out is left out, and stops nothing."""
        file = self.run_dir / "snapshot" / f"job_{self.number}_{os.environ.get('SLURM_RESTART_COUNT', '0')}"
        nodes = ",".join(self.nodes.names)
        asked = (["scontrol", "--version"], ["scontrol", "show", "job", self.number])
        asked += (["sinfo", "--Node", "--long", f"--nodes={nodes}"], ["scontrol", "show", "topology"])  # type: ignore[assignment]
        with suppress(OSError):
            file.with_suffix(".txt").write_text("".join(f"{ask(*words)}\n" for words in asked), encoding="utf-8")
        snapshot = ("-m", "benchmark.machine.environment_snapshot", str(file.with_suffix(".json")))
        noting = self._one_process(self.options.python, *snapshot)
        noting.communicate()
        if noting.returncode:
            say(f"warning: {file.with_suffix('.json')} could not be written")

    def write_plan(self) -> None:
        """Write plan.json, for the report, beside the run: nothing waits for it. A rehearsal's step is not planned."""
        file = self.run_dir / "plan.json"
        if not file.exists() and not self.command[1].startswith("rehearsal"):
            plan = [self.options.python, *self._benchmark("plan"), "--json"]
            with suppress(OSError):
                self._one_process("bash", "-c", WRITE_PLAN, str(file), *plan)

    # --- attempts

    def runs(self, other: str, *, holds_lock: bool) -> bool:
        kind, _, number = other.partition(" ")
        return is_running(number) if kind == "job" and number.isdigit() else holds_lock

    def choose(self, exclude: tuple[str, ...]) -> Decision | None:
        """Choose the nodes, those without a past first; they keep Slurm's order, in which it numbers the processes."""
        self._excluded = self.nodes.named(exclude)
        if self._started:
            self.nodes.wait_for_steps()  # look() has looked after the attempt
        else:
            self.nodes.look(probe=False)
        up, needed = self.nodes.up, self.needed
        fine = [node for node in up if node not in self._excluded]
        again = [node for node in up if node in self._excluded][: max(0, needed - len(fine))]
        self._used = [node for node in up if node in fine or node in again][:needed]
        if len(self._used) == needed:
            self._keep_sentinel()
            return None
        lost = ", ".join(self.nodes.down)
        words = f"{len(up)} of {len(self.nodes.names)} nodes are left, the run takes {needed} (failed: {lost})"
        say(words)
        return Decision("requeue", INTERRUPTED, words)

    def look(self) -> tuple[int, tuple[str, ...]]:
        self.nodes.look(probe=True)
        suspects = sum(node in self._excluded for node in self.nodes.up)
        return len(self.nodes.up) - self.needed - suspects, tuple(self.nodes.down)

    def time_is_up(self) -> bool:
        """Less than the margin is left."""
        left = seconds_left(self.number)
        return left is not None and left <= 60 * self.options.margin_minutes

    def may_start_again(self) -> bool:
        return not self.time_is_up()

    def _keep_sentinel(self) -> None:
        """On the last node that is up: it ends the job if this one, the first, is lost (sentinel.py)."""
        node = self.nodes.up[-1]
        alive = self._sentinel is not None and self._sentinel.poll() is None
        if node == self.here or (alive and node == self._sentinel_on):
            return
        if self._sentinel is not None and alive:
            self._sentinel.kill()
        where = ["--job-name=sentinel", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
        words = [sys.executable, "-m", "benchmark.launch.slurm.sentinel", str(self.run_dir), str(SENTINEL_LOOK_S)]
        quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._sentinel = subprocess.Popen(["srun", *ONE_PER_NODE, *where, *words], cwd=self.code, **quiet)
        self._sentinel_on = node

    def start(self, attempt: str, log: Path) -> int:
        """Start the processes and wait for their end; ask them to stop when time is up, and end an srun that does not
        see its end."""
        say(f"attempt {attempt}: {' '.join(self._used)}")
        with log.open("ab") as errors:
            self._launch(attempt, errors)
            alarm, alarmed, asked = log.with_name(ALARM), 0.0, time.monotonic()
            assert self._srun is not None
            while True:
                with suppress(subprocess.TimeoutExpired):
                    status = self._srun.wait(LOOK_S)
                    break
                now = time.monotonic()
                if now - asked > ASK_S:
                    asked = now
                    if self.time_is_up():  # each time: a process that was just starting did not hear it
                        minutes = self.options.margin_minutes
                        say(f"time is up in {minutes} minutes or less: asking the run to save and stop")
                        self._signal(signal.SIGUSR2)
                alarmed = alarmed or (now if alarm.exists() else 0.0)
                if alarmed and now - alarmed > ALARM_S:
                    say("srun does not end after its processes failed: ended by force")
                    self._srun.kill()
        self._srun = None
        return 128 - status if status < 0 else status

    def _launch(self, attempt: str, errors: Any) -> None:
        first, given = self._used[0], self.options.address
        if given is None or (given in self.nodes.names and given != first):
            given = self.nodes.address(first)
        # An earlier attempt's port may be held for a while, by the system or by a process that is dying.
        port = 20000 + (int(self.number) + 1009 * self._started) % 10000
        if self.options.port is not None:
            port = self.options.port + self._started % 100
        variables = {**os.environ, **environment_of(attempt, self.number)}
        variables.update(MASTER_ADDR=given, MASTER_PORT=str(port))
        if (submitted := submitted_s(self.number)) is not None:
            variables["SUBMITTED_S"] = f"{submitted:.0f}"
        words = self.srun_line()
        # the log says that caches were cleared only where the clock begins after it
        if self.trains and newest_saved(self.run_dir) is None and self._drop_page_caches():
            words.append("--cache-cleared")
        self._started += 1
        self._srun = subprocess.Popen(
            words, cwd=self.code, env=variables, stdin=subprocess.DEVNULL, stderr=errors, close_fds=True
        )
        if self.ordered:  # while it was starting
            self._signal(signal.SIGTERM if self.ordered == "SIGTERM" else signal.SIGUSR2)

    def _drop_page_caches(self) -> bool:
        """On every node that is used; whether it worked everywhere."""
        nodes = [f"--nodes={self.needed}", f"--ntasks={self.needed}", f"--nodelist={','.join(self._used)}"]
        quiet = subprocess.DEVNULL
        words = ["srun", *ONE_PER_NODE, *nodes, "sh", "-c", DROP_CACHES]
        return subprocess.call(words, stdin=quiet, stdout=quiet, stderr=quiet) == 0

    # --- orders

    def take_orders(self) -> None:
        signal.signal(signal.SIGUSR2, lambda *_: self._on_usr2())
        signal.signal(signal.SIGTERM, lambda *_: self._on_term())

    def _on_usr2(self) -> None:
        """Save and stop: from Slurm, some time before the job's end, or from a person."""
        left = seconds_left(self.number)
        if left is not None and 60 * self.options.margin_minutes < left < SLURMS_WARNING_S:
            return  # Slurm's warning; what is asked for at the margin itself comes then
        self.ordered = self.ordered or "SIGUSR2"
        say("SIGUSR2: asking the run to save and stop")
        self._signal(signal.SIGUSR2)

    def _on_term(self) -> None:
        self.ordered = "SIGTERM"
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._srun is not None:
            with suppress(ProcessLookupError):
                self._srun.send_signal(number)

    def end(self) -> None:
        if self._sentinel is not None:
            self._sentinel.kill()


def run_job(options: argparse.Namespace) -> int:
    """Run the benchmark in this job until it has ended or a person has to look; the exit status. Raises Refused."""
    job = SlurmJob(options)
    if options.dry_run:
        print(shlex.join(job.srun_line()))
        return 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # for the processes: docs/slurm.md counts what they open
    job.take_orders()
    try:
        return _train(job) if job.trains else _once(job)
    finally:
        job.end()


def _once(job: SlurmJob) -> int:
    """evaluate and preflight: from the checkout, once."""
    job.prepare()
    if job.choose(()) is not None:
        return INTERRUPTED
    return job.start(f"{job.command[0]}_{job.number}", Path("/dev/stderr"))


def _train(job: SlurmJob) -> int:
    options, number, restarts = job.options, job.number, os.environ.get("SLURM_RESTART_COUNT", "0")
    with alone_in(job.run_dir, job):
        if restarts == "0" and job.time_is_up():
            left = seconds_left(number)
            raise Refused(f"the job's time is up in {left} s, within EXIT_MARGIN_MINUTES={options.margin_minutes}")
        job.code = run_from_snapshot(options.repository, job.run_dir, new=options.new_snapshot and restarts == "0")
        job.prepare()
        job.note_surroundings()
        job.write_plan()
        if options.chain:
            script = [str(job.code / "run_gpt3.sh"), *options.script]
            more = [f"--chdir={options.repository}", f"--ntasks-per-node={options.devices}"]
            more += [f"--nodes={len(job.nodes.names)}", *shlex.split(options.chain_options)]
            queue_next_job(number, job.run_dir, script, more)
        decision = keep_running(job.run_dir, job)
    if job.ordered == "SIGTERM":
        say("ended by SIGTERM: scancel, preemption or requeue; the same command goes on from the last checkpoint")
    elif decision.action != "requeue":
        if options.chain:
            cancel_waiting(number, job.run_dir)
    elif go_on_later(number, job.run_dir, job.nodes.named(decision.exclude)):
        deadline = time.monotonic() + TO_BE_REQUEUED_S
        while time.monotonic() < deadline and job.ordered != "SIGTERM":  # Slurm ends this job
            time.sleep(1)
    return decision.status
