"""The steps of a job: the run's processes, sentinels, and single processes that check, note and plan the run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmark.launch.keep_running import Refused, say
from benchmark.launch.slurm.job_options import FP32_WARNING, JobOptions
from benchmark.launch.slurm.nodes import SILENT, ask, srun_per_node
from benchmark.run_record.file_names import PLAN_FILE, snapshot_folder
from foundation.disk_answers import is_there

# The lowest priority, and no device: the planning takes nothing from the run. Half a file is none.
WRITE_PLAN = 'CUDA_VISIBLE_DEVICES= nice -n 19 "$@" >"$0.partial" && mv "$0.partial" "$0" || rm -f "$0.partial"'
DROP_CACHES = "sync && (echo 3 >/proc/sys/vm/drop_caches || sudo -n sysctl -q vm.drop_caches=3)"
# Slurm starts one process per device. Its own variables hold the facts that torchrun would give the process. A signal
# that asks for a save ends no process that cannot listen yet.
TASK = (
    'trap "" USR1 USR2; export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS; '
    'export NODE_NAME=$SLURMD_NODENAME; exec "$@"'
)

UNFIT_STATUS = 3
"""Exit status of the check for an interpreter that lacks packages."""
FREE_TEXT = re.compile(r"^\s*(SubmitLine|Comment|AdminComment|SystemComment|Extra|MailUser)=.*\n", re.MULTILINE)
"""Lines of ``scontrol show job`` that hold texts of people, perhaps secret ones."""

CACHES_S = 300.0
"""Most seconds for dropping the page caches: sync waits for a disk that is slow or away."""
INTERPRETER_S = 3600.0
"""Most seconds for the check of the interpreter, for which the node may fetch the container's image."""
SNAPSHOT_S = 300.0
"""Most seconds for recording the environment."""
SHEPHERD_LOOK_S = 0.2


class UnfitInterpreter(Refused):
    """The interpreter lacks packages."""


class JobSteps:
    """Start the processes of a job. ``nodes_of_run`` is the number of nodes that the run takes."""

    def __init__(self, options: JobOptions) -> None:
        self._options, self._number = options, os.environ.get("SLURM_JOB_ID", "0")
        self.this_node = os.environ.get("SLURMD_NODENAME", "")
        self.code = options.code
        self.nodes_of_run = options.nodes or int(os.environ.get("SLURM_JOB_NUM_NODES") or 0)
        self._gpus = self._gpu_options("")
        self._device = ""
        """Kind of device of the run's system: "cuda" or "cpu"."""

    def find_gpus(self, nodes: Sequence[str]) -> None:
        """Ask Slurm whether the nodes have GPUs."""
        self._gpus = self._gpu_options(ask("scontrol", "--oneliner", "show", "node", *nodes[:1]))

    def run_line(self, nodes: Sequence[str]) -> list[str]:
        """Return the srun command that starts the run's processes on ``nodes``; empty: where Slurm likes."""
        devices, cores = self._options.devices, os.environ.get("SLURM_CPUS_PER_TASK")
        words = ["srun", "--kill-on-bad-exit=1", "--wait=60", "--overlap", "--no-kill=off", "--distribution=block"]
        words += [f"--nodes={self.nodes_of_run}", f"--ntasks={self.nodes_of_run * devices}"]
        words += [f"--ntasks-per-node={devices}"]
        words += [f"--nodelist={','.join(nodes)}"] if nodes else []
        words += [f"--cpu-bind={self._options.cpu_bind}"] + ([f"--cpus-per-task={cores}"] if cores else [])
        words += self._gpus + self._in_container()
        return [*words, "bash", "-c", TASK, "-", self._options.python, "-u", *self.benchmark(self._options.command)]

    def benchmark(self, command: str) -> list[str]:
        """Return a command about this run, as Python's arguments."""
        sizes = ["--nodes", str(self.nodes_of_run), "--devices-per-node", str(self._options.devices)]
        return ["-m", "benchmark", command, self._options.benchmark, *sizes, *self._options.command_options]

    def start_single(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a process on this node, in the container where there is one."""
        srun: list[str] = []
        if self._options.container != "none":
            srun = [*srun_per_node([self.this_node]), "--job-name=beside", *self._gpus, *self._in_container()]
        streams = {**SILENT, "stdout": subprocess.PIPE}
        return subprocess.Popen([*srun, *words], cwd=self.code, **streams)

    def start_sentinels(self, nodes: Sequence[str], script: str) -> subprocess.Popen[bytes]:
        """Start a sentinel on each of the nodes. ``script``: beginning of the tokens of this job's launchers.

        Their srun has a session of its own: the kernel hangs up those of a killed script if a process there is stopped.
        """
        where = [f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", f"--nodelist={','.join(nodes)}"]
        words = [sys.executable, "-m", "benchmark.launch.slurm.sentinel", str(self._options.run_dir), script]
        options = ["--overlap", "--ntasks-per-node=1", "--no-kill", "--kill-on-bad-exit=0", "--job-name=sentinel"]
        srun = subprocess.Popen(["srun", *options, *where, *words], cwd=self.code, start_new_session=True, **SILENT)
        threading.Thread(target=end_shepherd, args=(srun,), daemon=True).start()
        return srun

    def check_interpreter(self, allocated: int) -> None:
        """Count the nodes that the run takes of ``allocated`` ones, and check the options. Raises Refused for an error
        that all processes would have, and for too few nodes."""
        options = self._options
        try:
            facts, problem = self._answers("python", options.command, options.benchmark, *options.command_options)
            if problem is not None:
                raise problem
            self._device = facts.get("device", "")
            self.nodes_of_run = count_nodes(allocated, options.nodes, int(facts.get("nodes", 0)))
            self.check_options()
        except Refused as refused:
            raise Refused(f"{refused}, in CONTAINER {options.container} on {self.this_node}") from None

    def names(self) -> dict[str, str]:
        """Return nodes, devices of a node and kind of device of the system that the options name. Raises Refused."""
        options = self._options
        facts, problem = self._answers("names", options.command, options.benchmark, *options.command_options)
        if problem is not None and "device" not in facts:
            raise problem
        return facts

    def check_options(self, devices: int | None = None) -> int:
        """Return the nodes of the system that the options name. Raises Refused as the command would.

        ``devices``: of each node, if not the job's. Options hold also where the packages are missing.
        """
        options = self._options
        words = [options.command, options.benchmark, *options.command_options]
        if self.nodes_of_run:
            words = self.benchmark(options.command)[2:]
        words += [] if devices is None else ["--devices-per-node", str(devices)]
        facts, problem = self._answers("options", *words)
        of_system = int(facts.get("nodes", 0))
        if type(problem) is Refused and self.nodes_of_run and of_system not in (0, self.nodes_of_run):
            with_its_nodes = self._answers("options", *words, "--nodes", str(of_system))[1]
            if type(with_its_nodes) is not Refused:
                booking = f"the run takes {self.nodes_of_run} nodes, and its system has {of_system}"
                raise Refused(f"{problem} ({booking}: sbatch --nodes={of_system}, or name a SYSTEM)")
        if problem is not None and not (isinstance(problem, UnfitInterpreter) and of_system):
            raise problem
        if options.unasked_fp32:
            say(FP32_WARNING)
        return of_system

    def _answers(self, *words: str) -> tuple[dict[str, str], Refused | None]:
        """Check interpreter and options; return as :func:`answers_of`."""
        python, script = self._options.python, str(self.code / "benchmark" / "commands" / "interpreter_check.py")
        output, status = self._output(INTERPRETER_S, python, script, *words)
        return answers_of(python, output, status)

    def _output(self, limit_s: float, *words: str) -> tuple[str, int | None]:
        """Run a process on this node; return its output and exit status, which is None if it did not end."""
        process = self.start_single(*words)
        try:
            return process.communicate(timeout=limit_s)[0].decode(errors="replace"), process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            return "", None

    def note_surroundings(self, nodes: Sequence[str]) -> None:
        """Record the job's surroundings. A fact that cannot be read is left out, and stops nothing."""
        restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
        file = snapshot_folder(self._options.run_dir) / f"job_{self._number}_{restarts}"
        questions: list[list[str]] = [["scontrol", "--version"], ["scontrol", "show", "job", self._number]]
        questions += [["sinfo", "--Node", "--long", f"--nodes={','.join(nodes)}"], ["scontrol", "show", "topology"]]
        facts = FREE_TEXT.sub("", "".join(f"{ask(*words)}\n" for words in questions))
        with suppress(OSError):
            file.with_suffix(".txt").write_text(facts, encoding="utf-8")
        json = str(file.with_suffix(".json"))
        words = [self._options.python, "-m", "benchmark.planning.machine.environment_snapshot", json]
        if self._output(SNAPSHOT_S, *words)[1] != 0:
            say(f"warning: {json} could not be written")

    def write_plan(self) -> None:
        """Write plan.json, for the report, beside the run: nothing waits for it. A step on CPUs is not planned."""
        file = self._options.run_dir / PLAN_FILE
        with suppress(OSError):
            if self._device == "cuda" and not is_there(file):
                planning = [self._options.python, *self.benchmark("plan"), "--json"]
                self.start_single("bash", "-c", WRITE_PLAN, str(file), *planning)

    def drop_page_caches(self, nodes: Sequence[str]) -> bool:
        """Drop the page caches of the nodes; return whether it worked on all of them."""
        try:
            return subprocess.call([*srun_per_node(nodes), "sh", "-c", DROP_CACHES], timeout=CACHES_S, **SILENT) == 0
        except subprocess.TimeoutExpired:
            say(f"warning: the page caches are not dropped: no end after {CACHES_S:g} s")
            return False

    def _gpu_options(self, first_node: str) -> list[str]:
        """Return the options by which a step gets the job's GPUs.

        Without them a step of a job that has a node to itself sees none, though the job has them all. Where Slurm knows
        of no GPUs the options are refused.
        """
        devices = self._options.devices
        if os.environ.get("SLURM_GPUS_ON_NODE") or os.environ.get("SLURM_JOB_GPUS"):
            # steps inherit it where each task has its own
            return [] if os.environ.get("SLURM_GPUS_PER_TASK") else [f"--gpus-per-node={devices}"]
        if " Gres=gpu" in first_node or ",gpu" in first_node:
            say(f"warning: the nodes have GPUs that the job did not get: sbatch --gpus-per-node={devices}")
        return []

    def _in_container(self) -> list[str]:
        options = self._options
        if options.container == "none":
            return []
        code = [] if options.run_dir in self.code.parents else [self.code]
        mounts = ",".join(f"{path}:{path}" for path in (*code, options.run_dir, *options.mounts.values()))
        # Under its name the container stays on the nodes until the job ends: the next attempt does not unpack it again.
        words = ["--container-image", options.container, "--container-name", f"gpt3_{self._number}"]
        return [*words, "--container-mounts", mounts, "--container-workdir", str(self.code)]


def answers_of(python: str, output: str, status: int | None) -> tuple[dict[str, str], Refused | None]:
    """Return the answers of interpreter_check.py by their first word, and the problem, if there is one.

    ``status``: exit status; None if it did not end.
    """
    if status is None:
        return {}, Refused(f"{python}: no end after {INTERPRETER_S:g} s")
    facts = {name: value for name, _, value in reversed([line.partition(" ") for line in output.splitlines()])}
    problem = facts.get("error:", f"{python} does not run (status {status})")
    return facts, (UnfitInterpreter if status == UNFIT_STATUS else Refused)(problem) if status else None


def end_shepherd(srun: subprocess.Popen[bytes]) -> None:
    """End srun's child, which kills the whole step once srun itself is killed. Without it a step outlives its srun, as
    when the job's script is killed, or the first node is lost process by process."""
    while srun.poll() is None:
        for children in Path(f"/proc/{srun.pid}/task").glob("*/children"):
            with suppress(OSError):
                for child in children.read_text().split():
                    if Path(f"/proc/{child}/comm").read_text() == "srun\n":
                        os.kill(int(child), signal.SIGKILL)
                        return
        time.sleep(SHEPHERD_LOOK_S)


def count_nodes(allocated: int, nodes_asked: int | None, of_system: int) -> int:
    """Return the number of nodes that the run takes. Raises Refused if the job has too few.

    The others are spare: NODES is smaller than the job, or the job has a few more nodes than the system.
    """
    nodes_of_run = nodes_asked or allocated
    if not nodes_asked and 0 < 8 * (allocated - of_system) <= of_system:
        nodes_of_run = of_system
    if nodes_of_run > allocated:
        raise Refused(f"NODES={nodes_of_run}, but the job has {allocated} nodes: sbatch --nodes={nodes_of_run} or more")
    if nodes_of_run < allocated:
        say(f"{nodes_of_run} of {allocated} nodes are used, {allocated - nodes_of_run} are spare")
    return nodes_of_run
