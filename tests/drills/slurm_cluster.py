"""A Slurm cluster whose nodes, daemons and processes a drill can disturb."""

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tests.drills import node_processes


class SlurmCluster(ABC):
    environment: dict[str, str]
    """Variables of Slurm's commands."""
    python = sys.executable
    """Interpreter on the nodes."""
    sbatch: tuple[str, ...] = ()
    """Options of sbatch for each job."""

    def run(self, *words: object, check: bool = True) -> str:
        """Return the standard output of a Slurm command."""
        command = [str(word) for word in words]
        process = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        if check and process.returncode:
            raise RuntimeError(f"{command}: {process.stderr.strip()}")
        return process.stdout.strip()

    def states(self) -> dict[str, str]:
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
        return {node: state for node, _, state in (line.partition(" ") for line in lines)}

    def nodes_of(self, job: str) -> list[str]:
        """Return the job's nodes in Slurm's order; the job's script runs on the first."""
        return self.run("scontrol", "show", "hostnames", self.run("squeue", "-h", "-j", job, "-o", "%N")).split()

    def signal(self, node: str, run_dir: Path, role: str, number: int) -> None:
        """Signal the processes of a run's role (node_processes.py) on a node."""
        program = str(Path(node_processes.__file__))
        self.on_node(node, [self.python, program, str(run_dir), role, str(int(number))])

    @abstractmethod
    def on_node(self, node: str, words: Sequence[str]) -> None:
        """Run a command on a node."""

    @abstractmethod
    def stop_daemon(self, node: str) -> None:
        """End a node's slurmd, not its job steps."""

    @abstractmethod
    def start_daemon(self, node: str) -> None: ...

    @abstractmethod
    def cut_power(self, node: str, pause_s: float = 0.0) -> None: ...

    @abstractmethod
    def give_power(self, node: str) -> None: ...

    @abstractmethod
    def stop_controller(self) -> None: ...

    @abstractmethod
    def start_controller(self) -> None: ...
