"""The steps of a job: how srun is told to start the run's processes, and single ones beside them."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Sequence

from benchmark.launch.keep_running import say
from benchmark.launch.slurm.nodes import ONE_PER_NODE, ask

DROP_CACHES = "sync && (echo 3 >/proc/sys/vm/drop_caches || sudo -n sysctl -q vm.drop_caches=3)"
# Slurm starts one process per device; what torchrun would tell it, it gets from Slurm's own variables. Signals that ask
# for saving end no process that cannot listen yet.
TASK = (
    'trap "" USR1 USR2; export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS; '
    'export NODE_NAME=$SLURMD_NODENAME; exec "$@"'
)


class JobSteps:
    """Start the processes of a job. ``needed`` is the number of nodes that the run takes."""

    def __init__(self, options: argparse.Namespace) -> None:
        """``options``: those of ``python3 -m benchmark.launch``."""
        self._options, self._number = options, os.environ.get("SLURM_JOB_ID", "0")
        self.here = os.environ.get("SLURMD_NODENAME", "")
        self.code = options.code
        self.needed = options.nodes or int(os.environ.get("SLURM_JOB_NUM_NODES") or 64)
        self._bind = [f"--cpu-bind={options.cpu_bind}"]
        self._gpus = self._gpu_options("")

    def fit_cluster(self, nodes: Sequence[str]) -> None:
        """Ask Slurm how processes are bound to cores here, and whether the nodes have GPUs."""
        plugins = [line for line in ask("scontrol", "show", "config").splitlines() if line.startswith("TaskPlugin ")]
        if not any(word in line for line in plugins for word in ("affinity", "cgroup")):
            self._bind = []  # srun complains where it cannot bind processes to cores
        self._gpus = self._gpu_options(ask("scontrol", "--oneliner", "show", "node", *nodes[:1]))

    def run_line(self, nodes: Sequence[str]) -> list[str]:
        """Return the srun command that starts the run's processes on ``nodes``; empty: where Slurm likes."""
        devices, cores = self._options.devices, os.environ.get("SLURM_CPUS_PER_TASK")
        words = ["srun", "--kill-on-bad-exit=1", "--wait=60", "--overlap", "--no-kill=off", f"--nodes={self.needed}"]
        words += [f"--ntasks={self.needed * devices}", f"--ntasks-per-node={devices}", "--distribution=block"]
        words += [f"--nodelist={','.join(nodes)}"] if nodes else []
        words += self._bind + ([f"--cpus-per-task={cores}"] if cores else []) + self._gpus + self._in_container()
        return [*words, "bash", "-c", TASK, "-", self._options.python, "-u", *self.benchmark(self._options.command[0])]

    def benchmark(self, command: str) -> list[str]:
        """Return a command about this run, as Python's arguments."""
        sizes = ["--nodes", str(self.needed), "--devices-per-node", str(self._options.devices)]
        return ["-m", "benchmark", command, self._options.command[1], *sizes, *self._options.command[2:]]

    def beside(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a process on this node, in the container where there is one."""
        before: list[str] = []
        if self._options.container != "none":
            where = ["--job-name=beside", "--nodes=1", "--ntasks=1", f"--nodelist={self.here}"]
            before = ["srun", *ONE_PER_NODE, *where, *self._gpus, *self._in_container()]
        quiet = subprocess.DEVNULL
        return subprocess.Popen([*before, *words], cwd=self.code, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)

    def drop_page_caches(self, nodes: Sequence[str]) -> bool:
        """Drop the page caches of the nodes; return whether it worked on all of them."""
        where = [f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", f"--nodelist={','.join(nodes)}"]
        quiet = subprocess.DEVNULL
        words = ["srun", *ONE_PER_NODE, *where, "sh", "-c", DROP_CACHES]
        return subprocess.call(words, stdin=quiet, stdout=quiet, stderr=quiet) == 0

    def _gpu_options(self, first_node: str) -> list[str]:
        """Return what a step needs to get the job's GPUs. Without it a step of a job that has a node to itself sees
        none, though the job has them all; where Slurm knows of no GPUs it is refused."""
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
        mounts = ",".join(f"{path}:{path}" for path in (*code, options.run_dir, *options.mount))
        # Under its name the container stays on the nodes until the job ends: the next attempt does not unpack it again.
        words = ["--container-image", options.container, "--container-name", f"gpt3_{self._number}"]
        return [*words, "--container-mounts", mounts, "--container-workdir", str(self.code)]
