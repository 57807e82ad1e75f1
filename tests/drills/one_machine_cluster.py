"""A real Slurm cluster of several nodes that are all this machine: its daemons are started and killed as nodes are."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.drills.slurm_cluster import SlurmCluster

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
FIRST_PORT, PORTS = 17800, 20
"""First port of the first cluster, and ports of each."""
MOST_CLUSTERS, FIRST_JOBS = 8, 110
"""Most clusters on this machine at once, and numbers of jobs between their first: ports of runs follow from both."""
PATIENCE_S = 60.0
CONFIGURATION = """
ClusterName=drills
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
FirstJobId={first_job}
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
ReturnToService=2
SlurmdTimeout={dead_after_s}
KillWait=15
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def cannot_run() -> str | None:
    """Why there can be no such cluster here; None: there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        return f"{', '.join(missing)} not found: apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "Slurm's daemons need root"


class OneMachineCluster(SlurmCluster):
    """Nodes n1, n2, ... of two cores each. Use it in a ``with`` block; it ends what it started."""

    def __init__(self, folder: Path, nodes: int, *, dead_after_s: int = 15) -> None:
        self.folder = folder.resolve()
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        host, number = socket.gethostname(), _first_free_number()
        port = FIRST_PORT + PORTS * number
        rows = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port + place} CPUs=2 RealMemory=1000"
            for place, name in enumerate(self.names, 1)
        ]
        facts = {"host": host, "port": port, "first_job": 1 + FIRST_JOBS * number, "dead_after_s": dead_after_s}
        text = CONFIGURATION.format(folder=self.folder, nodes="\n".join(rows), **facts)
        (self.folder / "slurm.conf").write_text(text)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))},
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }

    def __enter__(self) -> "OneMachineCluster":
        _start_munge()
        self.run("slurmctld", "-c")
        for name in self.names:
            self.start_daemon(name)
        deadline = time.monotonic() + PATIENCE_S
        while self.states() != dict.fromkeys(self.names, "idle"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster did not come up: {self.states()}; see {self.folder}")
            time.sleep(1)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            self.stop_daemon(name)
        self.stop_controller()

    def on_node(self, node: str, words: Sequence[str]) -> None:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    def stop_daemon(self, node: str) -> None:
        self._end(f"slurmd-{node}")

    def start_daemon(self, node: str) -> None:
        self.run("slurmd", "-N", node, "-f", self.folder / "slurm.conf")

    def cut_power(self, node: str, pause_s: float = 0.0) -> None:
        """The daemon ends, and those of its job steps, and their processes, with ``pause_s`` seconds between them."""
        self._end(f"slurmd-{node}")
        for process in _processes_with(f"SLURMD_NODENAME={node}", f"SLURM_CONF={self.folder}/slurm.conf"):
            time.sleep(pause_s)
            with contextlib.suppress(OSError):
                parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
                if Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
                    os.kill(parent, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)

    def give_power(self, node: str) -> None:
        self.start_daemon(node)

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def start_controller(self) -> None:
        self.run("slurmctld")

    def _end(self, name: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is gone
            os.kill(int((self.folder / f"{name}.pid").read_text()), signal.SIGTERM)


def _first_free_number() -> int:
    """Return the number of the first cluster on this machine whose controller's port is free."""
    for number in range(MOST_CLUSTERS):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", FIRST_PORT + PORTS * number)):
                return number
    raise OSError(f"{MOST_CLUSTERS} clusters run on this machine")


def _processes_with(*settings: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if all(setting.encode() in variables for setting in settings):
            found.append(int(folder.name))
    return found


def _start_munge() -> None:
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode == 0:
        return
    for folder in ("/run/munge", "/var/log/munge", "/var/lib/munge"):
        subprocess.run(["install", "-d", "-o", "munge", "-g", "munge", folder], check=True)
    key = Path("/etc/munge/munge.key")
    if not key.exists():
        key.write_bytes(os.urandom(1024))
        shutil.chown(key, "munge")
        key.chmod(0o400)
    subprocess.run(["su", "-s", "/bin/sh", "munge", "-c", "/usr/sbin/munged"], check=True)
