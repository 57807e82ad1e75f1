"""A Slurm cluster that is there already, as a file in TOML describes it: how its nodes and daemons are reached.

sbatch = ["--partition=drills"]
python = "python3"            # on the nodes
on_node = "ssh {node}"        # the command, as one word, is appended; by a user who may signal Slurm's daemons
stop_daemon = "ssh {node} systemctl kill --kill-whom=main --signal=KILL slurmd"
start_daemon = "ssh {node} systemctl start slurmd"
cut_power = "ipmitool -H {node}-bmc chassis power off"
give_power = "ipmitool -H {node}-bmc chassis power on"
stop_controller = "ssh head systemctl stop slurmctld"
start_controller = "ssh head systemctl start slurmctld"
"""

import os
import shlex
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.drills.slurm_cluster import SlurmCluster

COMMANDS = ("on_node", "stop_daemon", "start_daemon", "cut_power", "give_power", "stop_controller", "start_controller")


class PresentCluster(SlurmCluster):
    def __init__(self, file: Path) -> None:
        """Raises ValueError for a file without one of the commands."""
        fields = tomllib.loads(file.read_text(encoding="utf-8"))
        if missing := [name for name in COMMANDS if not isinstance(fields.get(name), str)]:
            raise ValueError(f"{file}: {', '.join(missing)}: missing; tests/drills/present_cluster.py has an example")
        self._commands = {name: str(fields[name]) for name in COMMANDS}
        self.sbatch = tuple(map(str, fields.get("sbatch", [])))
        self.python = str(fields.get("python", "python3"))
        is_of_job = [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_")) and name != "SLURM_CONF"]
        self.environment = {name: value for name, value in os.environ.items() if name not in is_of_job}

    def _do(self, name: str, *more_words: str, node: str = "") -> None:
        words = [*shlex.split(self._commands[name].format(node=node)), *more_words]
        subprocess.run(words, check=True, timeout=600)

    def on_node(self, node: str, words: Sequence[str]) -> None:
        self._do("on_node", shlex.join(words), node=node)

    def stop_daemon(self, node: str) -> None:
        self._do("stop_daemon", node=node)

    def start_daemon(self, node: str) -> None:
        self._do("start_daemon", node=node)

    def cut_power(self, node: str, pause_s: float = 0.0) -> None:
        self._do("cut_power", node=node)

    def give_power(self, node: str) -> None:
        self._do("give_power", node=node)

    def stop_controller(self) -> None:
        self._do("stop_controller")

    def start_controller(self) -> None:
        self._do("start_controller")
