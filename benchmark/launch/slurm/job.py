"""The job of run_gpt3.sh: the nodes of an attempt, the end of an attempt, and the next step after it."""

from __future__ import annotations

import functools
import math
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.launch.keep_running import DISK_S, Refused, RunMachines, keep_running, note_stop, patiently, say
from benchmark.launch.next_attempt import INTERRUPTED, Decision
from benchmark.launch.slurm.end_signs import ALARM_S, patience_s
from benchmark.launch.slurm.job_options import GPT3, JobOptions, require_paths
from benchmark.launch.slurm.job_steps import INTERPRETER_S, JobSteps, UnfitInterpreter
from benchmark.launch.slurm.nodes import (
    TIME_LIMIT,
    Nodes,
    host_names,
    is_requeued,
    job_fields,
    seconds_left,
    with_answer,
)
from benchmark.launch.slurm.queue import CHAINED, cancel_waiting, go_on_later, queue_next_job, waiting_job
from benchmark.launch.slurm.snapshot import run_from_snapshot
from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.run_record.lease import JOB_S, Lease

BOOKED_NODES = {GPT3: 64}
"""Nodes that run_gpt3.sh books, by benchmark, where nothing can say how many its system has."""
LOOK_S = 1.0
"""Seconds between looks at the attempt's alarm."""
ASK_S = 60.0
"""Seconds between questions about the job's time."""
STEP_START_S = 900.0
"""Most seconds in which srun starts a process; with an image, which the nodes may fetch, INTERPRETER_S."""
TO_BE_REQUEUED_S = 300
OVER_STATES = frozenset(
    "PENDING COMPLETED CANCELLED FAILED NODE_FAIL TIMEOUT PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY".split()
)
"""Slurm's states of a job that does not run."""


class SlurmJob(RunMachines):
    def __init__(self, options: JobOptions) -> None:
        self.options, self.run_dir, self.steps = options, options.run_dir, JobSteps(options)
        self.trains = options.command == "train"
        self.number = os.environ.get("SLURM_JOB_ID", "0")
        self.restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
        self.name, self.lease_s = f"job {self.number}", JOB_S
        self.script_process = os.getppid()
        folder = Path(os.environ.get("LAUNCHER_FOLDER") or secrets.token_hex(8))
        self.script = f"{self.number}-{self.restarts}-{folder.name}"
        """Name of the job's script, with which the tokens of its launchers begin."""
        self.token = f"{self.script}-{os.environ.get('LAUNCHES', '1')}"
        self._started = 10 * (int(os.environ.get("LAUNCHES", "1")) - 1)
        """Attempts of this job so far, by which ports differ: ten for each launcher that was killed."""
        self.goes_on = self.restarts != "0" or self._started > 0 or CHAINED in os.environ
        self.nodes = Nodes(self.number, [], lambda: self.ordered)
        self._limit_s = math.inf
        """Monotonic time of the job's time limit, as Slurm's latest answer has it."""
        self._excluded: list[str] = []  # nodes to leave out for a fault on them
        self._used: list[str] = []
        self._srun: subprocess.Popen[bytes] | None = None
        self._step_is_over = False
        """Whether Slurm had no step of an attempt at the latest question."""
        self._sentinels: subprocess.Popen[bytes] | None = None
        self._watched: list[str] = []  # nodes with a sentinel

    def is_predecessor(self, lease: Lease) -> bool:
        return lease.token.startswith(f"{self.script}-")  # the script starts a launcher after it saw the last one's end

    def patience_s(self, lease: Lease) -> float:
        return DISK_S if lease.holder == self.name else JOB_S

    def find_nodes(self) -> None:
        """Find the job's nodes, and check the interpreter and the options. Raises Refused."""
        listed = os.environ["SLURM_JOB_NODELIST"]
        names = with_answer(lambda: host_names(listed), f"scontrol show hostnames {listed}", lambda: self.ordered)
        self.nodes = Nodes(self.number, names, lambda: self.ordered)
        self.nodes.look(probe=False)
        if self.trains:
            self._keep_sentinels()
        self.steps.find_gpus(self.nodes.names)
        self.steps.check_interpreter(len(self.nodes.names))

    def prepare(self) -> None:
        options, number, is_first = self.options, self.number, self.restarts == "0"
        if is_first and self.time_is_up():
            seconds = self._limit_s - time.monotonic()
            raise Refused(
                f"the job's time is up in {seconds:.0f} s, within EXIT_MARGIN_MINUTES={options.margin_minutes}"
            )
        new = options.new_snapshot and is_first
        snapshot = functools.partial(run_from_snapshot, new=new, more_files=options.snapshot_files)
        self.steps.code = patiently(lambda: snapshot(options.repository, self.run_dir), self)
        self.find_nodes()
        self.steps.note_surroundings(self.nodes.names)
        self.steps.write_plan()
        if options.chain:
            script = [str(self.steps.code / "run_gpt3.sh"), *options.script]
            sbatch_options = [f"--chdir={options.repository}", f"--ntasks-per-node={options.devices}"]
            sbatch_options += [f"--nodes={len(self.nodes.names)}", *options.chain_options]
            queue_next_job(number, self.run_dir, script, sbatch_options)

    def choose(self, exclude: tuple[str, ...]) -> Decision | None:
        """Choose the nodes, those without a past first; they keep Slurm's order, in which it numbers the processes."""
        if self._notice_end():
            return Decision("requeue", INTERRUPTED, "Slurm has ended this job or started it again elsewhere")
        self._excluded = self.nodes.named(exclude)
        if self._started:
            self.nodes.wait_for_steps()
        up, nodes_of_run = self.nodes.up, self.steps.nodes_of_run
        sound_nodes = [node for node in up if node not in self._excluded]
        suspects = [node for node in up if node in self._excluded][: max(0, nodes_of_run - len(sound_nodes))]
        self._used = [node for node in up if node in sound_nodes or node in suspects][:nodes_of_run]
        if len(self._used) == nodes_of_run:
            if self.trains:
                self._keep_sentinels()
            return None
        lost = ", ".join(self.nodes.down)
        reason = f"{len(up)} of {len(self.nodes.names)} nodes are left, the run takes {nodes_of_run} (failed: {lost})"
        say(reason)
        return Decision("requeue", INTERRUPTED, reason)

    def look(self) -> tuple[int, tuple[str, ...]]:
        self.nodes.look(probe=True)
        self.may_leave_ranks |= self._used[0] in self.nodes.down
        suspects = sum(node in self._excluded for node in self.nodes.up)
        return len(self.nodes.up) - self.steps.nodes_of_run - suspects, tuple(self.nodes.down)

    def time_is_up(self) -> bool:
        self._fields()
        return self._is_late

    @property
    def _is_late(self) -> bool:
        return self._limit_s - time.monotonic() <= 60 * self.options.margin_minutes

    def _fields(self) -> dict[str, str]:
        """Return the job's fields, empty without an answer, and note its time limit."""
        if fields := job_fields(self.number):
            self._limit_s = time.monotonic() + seconds_left(fields)
        return fields

    def _keep_sentinels(self) -> None:
        """Have a sentinel on every node that is up: together they end the job if its launcher is lost."""
        is_alive = self._sentinels is not None and self._sentinels.poll() is None
        if is_alive and self.nodes.up == self._watched:
            return
        self._watched, earlier = list(self.nodes.up), self._sentinels
        self._sentinels = self.steps.start_sentinels(self._watched, self.script)
        if earlier is not None:
            earlier.terminate()

    def _notice_end(self) -> bool:
        """Return whether Slurm has ended this job or started it elsewhere although its script lives, as on a node whose
        daemon is dead; stop this launcher then."""
        fields = self._fields()
        is_here = fields.get("Restarts", self.restarts) == self.restarts or fields.get("JobState") == "COMPLETING"
        if is_here and fields.get("JobState") not in OVER_STATES:
            return False
        say(f"Slurm has {'ended this job' if is_here else 'started this job again elsewhere'}: the run is stopped here")
        self.may_leave_ranks = True
        self._ask_to_stop("SIGTERM", signal.SIGTERM)
        return True

    def _each_minute(self) -> None:
        """Keep the sentinels; ask the run to stop if the job is over, its time is up, or the disk was away too long."""
        self._step_is_over = self.nodes.steps() == []
        unrenewed_s = 0.0 if self.lease is None else self.lease.unrenewed_s()
        if self._notice_end():
            return
        if self._is_late:  # each time: a process that was just starting did not hear it
            say(f"time is up in {self.options.margin_minutes} minutes or less: asking the run to save and stop")
            self._signal(signal.SIGUSR2)
        elif unrenewed_s > DISK_S:
            self._ask_to_stop(f"{self.run_dir}, away for {unrenewed_s:.0f} s")
        elif self.trains:
            self._keep_sentinels()

    def start(self, attempt: str, log: Path) -> int:
        """Start the processes and wait for their end; end an srun that does not see it."""
        say(f"attempt {attempt}: {' '.join(self._used)}")
        self.may_leave_ranks = False
        with patiently(lambda: log.open("ab"), self) as errors:
            self._launch(attempt, errors)
            self._step_is_over, ending_s, asked_s = False, 0.0, time.monotonic()
            start_s = STEP_START_S if self.options.container == "none" else INTERPRETER_S
            assert self._srun is not None
            while True:
                with suppress(subprocess.TimeoutExpired):
                    status = self._srun.wait(LOOK_S)
                    break
                clock_s = time.monotonic()
                if clock_s - asked_s > ASK_S:
                    asked_s = clock_s
                    self._each_minute()
                limit_s = None
                if self.may_leave_ranks or self.has_lost_lease:
                    limit_s = ALARM_S
                elif self.trains:
                    limit_s = patience_s(self.run_dir, log.parent, start_s, step_is_over=self._step_is_over)
                ending_s = 0.0 if limit_s is None else ending_s or clock_s
                if limit_s is not None and clock_s - ending_s > limit_s:
                    say("srun does not end after its processes failed or ended, or has begun none: ended by force")
                    self.may_leave_ranks = True
                    self._srun.kill()
        self._srun = None
        return 128 - status if status < 0 else status

    def _launch(self, attempt: str, errors: Any) -> None:
        first_node, address = self._used[0], self.options.address
        if address is None or (address in self.nodes.names and address != first_node):
            # with one node nobody outside it needs to reach the meeting point
            address = "localhost" if len(self._used) == 1 else self.nodes.address(first_node)
        # An earlier attempt's port may be held for a while, by the system or by a process that is dying.
        port = 20000 + (int(self.number) + 1009 * self._started) % 10000
        if self.options.port is not None:
            port = self.options.port + self._started % 100
        variables = {**os.environ, **self.environment(attempt, self.number)}
        variables.update(MASTER_ADDR=address, MASTER_PORT=str(port))
        if (submitted_s := job_fields(self.number).get("SubmitTime", "")).isdecimal():
            variables["SUBMITTED_S"] = submitted_s
        words = self.steps.run_line(self._used)
        # the log says that caches were cleared only where the clock begins after it
        is_begun = not self.trains or patiently(lambda: newest_checkpoint(self.run_dir), self) is not None
        if not is_begun and self.steps.drop_page_caches(self._used):
            words.append("--cache-cleared")
        self._started += 1
        self._srun = subprocess.Popen(
            words, cwd=self.steps.code, env=variables, stdin=subprocess.DEVNULL, stderr=errors, close_fds=True
        )
        if self.ordered:  # while it was starting
            self._signal(signal.SIGTERM if self.ordered == "SIGTERM" else signal.SIGUSR2)

    def take_orders(self) -> None:
        signal.signal(signal.SIGUSR2, lambda *_: self._ask_to_stop("SIGUSR2"))
        signal.signal(signal.SIGTERM, lambda *_: self._ask_to_stop("SIGTERM", signal.SIGTERM))
        folder = os.environ.get("LAUNCHER_FOLDER")
        if folder is not None and not self.ordered and (Path(folder) / "stop").exists():
            self._ask_to_stop("SIGUSR2")  # it came before

    def _ask_to_stop(self, order: str, number: int = signal.SIGUSR2) -> None:
        if number == signal.SIGUSR2:
            say(f"{order}: asking the run to save and stop")
        self.ordered = order if number == signal.SIGTERM else self.ordered or order
        self._signal(number)

    def _signal(self, number: int) -> None:
        if self._srun is not None:
            with suppress(ProcessLookupError):
                self._srun.send_signal(number)

    def end(self) -> None:
        if self._sentinels is not None:
            self._sentinels.terminate()


def run_job(options: JobOptions) -> int:
    """Run the benchmark in this job until it has ended or a person has to look; the exit status. Raises Refused."""
    job = SlurmJob(options)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # for the processes' files, which docs/slurm.md counts
    job.take_orders()
    try:
        return _train(job) if job.trains else _once(job)
    finally:
        job.end()


def preview(options: JobOptions) -> JobSteps:
    """Return the steps of a job of as many nodes as it asks for or its system has. Raises Refused as the run would."""
    require_paths(options)
    # An old python3 cannot check them, nor a system's file without packages, as where they are in an image.
    environment = str(options.repository / ".venv" / "bin" / "python")
    steps, problem = JobSteps(options), None
    for python in filter(shutil.which, dict.fromkeys((options.python, environment, sys.executable))):
        checker = JobSteps(replace(options, container="none", python=python))
        try:
            of_system = checker.check_options()
            steps.nodes_of_run = steps.nodes_of_run or of_system
            return steps
        except UnfitInterpreter as unfit:
            problem = unfit
    print(f"the options are not checked: {problem}", file=sys.stderr)
    steps.nodes_of_run = steps.nodes_of_run or BOOKED_NODES.get(options.benchmark, 1)
    return steps


def _once(job: SlurmJob) -> int:
    """Run evaluate or preflight once, from the checkout."""
    job.find_nodes()
    if job.choose(()) is not None:
        return INTERRUPTED
    return job.start(f"{job.options.command}_{job.number}", Path("/dev/stderr"))


def _train(job: SlurmJob) -> int:
    """Train from the run's own copy of the code; see afterwards that the run goes on in this job or the next."""
    options, number = job.options, job.number
    decision = keep_running(job.run_dir, job)
    if job.ordered == "SIGTERM" and os.getppid() == job.script_process:
        _tell_after_sigterm(job)
    elif decision.action != "requeue":
        if options.chain:
            cancel_waiting(number, job.run_dir)
    else:  # after SIGTERM too, if the job's script was killed: Slurm ends the job then, and sends it nowhere
        successor = go_on_later(
            number,
            job.run_dir,
            job.nodes.named(decision.exclude),
            lambda: job.ordered == "SIGTERM" and os.getppid() == job.script_process,
        )
        if successor == "nobody":
            note_stop(job.run_dir)
        deadline = time.monotonic() + TO_BE_REQUEUED_S
        while successor == "this job" and time.monotonic() < deadline and job.ordered != "SIGTERM":
            time.sleep(1)  # Slurm ends this job
    return decision.status


def _tell_after_sigterm(job: SlurmJob) -> None:
    """Say how the run goes on after Slurm has ended the job: scancel, preemption or somebody's requeue."""
    fields = job_fields(job.number)
    if not fields or job.may_leave_ranks:
        return
    is_back = is_requeued(fields, job.restarts)
    if not is_back and (waiting := waiting_job(job.number, job.run_dir)) is not None:
        say(f"ended by SIGTERM: the run goes on in job {waiting}")
    elif is_back or fields.get("Reason") == TIME_LIMIT:  # then a sentinel sends the job there
        say(f"ended by SIGTERM: the run goes on when job {job.number} has come through the queue again")
    else:
        say("ended by SIGTERM, as by scancel: the same command goes on from the last checkpoint")
        note_stop(job.run_dir)
