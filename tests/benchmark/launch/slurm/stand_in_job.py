"""A job of run_gpt3.sh with stand-ins for Slurm's commands and Python."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support import REPOSITORY

STAND_IN = Path(__file__).with_name("stand_in.sh")
COMMANDS = ("srun", "squeue", "scontrol", "sinfo", "sbatch", "scancel", "python3")


def lean_checkout(folder: Path) -> Path:
    """Make a checkout without git of the files that the launcher needs, and of their bytecode."""
    for room in ("launch", "run_record"):
        shutil.copytree(REPOSITORY / "benchmark" / room, folder / "benchmark" / room)
    (folder / "benchmark" / "config").mkdir()
    (folder / "foundation").mkdir()
    modules = ["benchmark/__init__", "benchmark/config/__init__", "benchmark/config/number_formats"]
    modules += ["foundation/__init__", "foundation/disk_answers"]
    for name in ("run_gpt3.sh", "environment.sh", *(f"{module}.py" for module in modules)):
        shutil.copy(REPOSITORY / name, folder / name)
    return folder


@dataclass
class Job:
    """A job on nodes n1 to n3, of which the run takes two."""

    folder: Path

    def __post_init__(self) -> None:
        self.script = REPOSITORY / "run_gpt3.sh"
        self.answers, self.log_dir = self.folder / "answers", self.folder / "log"
        (self.folder / "bin").mkdir(parents=True)
        self.answers.mkdir()
        for name in COMMANDS:
            (self.folder / "bin" / name).symlink_to(STAND_IN)
        self.answer(left="Unknown", states="n1 allocated\nn2 allocated\nn3 allocated", nodes="n1,n2,n3")
        self.answer(interpreter="nodes 64\ndevice cuda", interpreter_status="0", statuses="0")
        checkout = lean_checkout(self.folder / "checkout")
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER"))},
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "STAND_IN": str(self.answers),
            "REAL_PYTHON": sys.executable,
            "PYTHONDONTWRITEBYTECODE": "1",
            "SLURM_JOB_ID": "5",
            "SLURM_SUBMIT_DIR": str(checkout),
            "SLURM_JOB_NODELIST": "n1,n2,n3",
            "SLURM_NTASKS_PER_NODE": "8",
            "SLURMD_NODENAME": "n1",
            "COM_DIR": "/data",
            "USE_BF16": "true",
            "NODES": "2",
        }

    def answer(self, **lines: str) -> None:
        for name, text in lines.items():
            (self.answers / name).write_text(f"{text}\n")

    def edit(self, file: str, old: str, new: str) -> None:
        """Change a line of the checkout, such as a limit."""
        path = self.folder / "checkout" / "benchmark" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def shorten_lease(self, seconds: float) -> None:
        self.edit("run_record/lease.py", "JOB_S, MACHINE_S = 120.0", f"JOB_S, MACHINE_S = {seconds}")

    def begin_again(self) -> None:
        """Forget that the run has ended."""
        (self.log_dir / "summary.json").unlink()
        self.answer(restarts="0")

    def log(self) -> list[str]:
        """Lines of the job's log without their times."""
        lines = (self.log_dir / "slurm_5.out").read_text().splitlines()
        assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in lines)
        return [line[20:] for line in lines]

    def run(self, container: str = "none", **variables: str) -> "subprocess.CompletedProcess[str]":
        words = [str(self.script), str(self.log_dir), "/bpe", container]
        environment = {**self.variables, "LOG_DIR": str(self.log_dir), **variables}
        if "SLURM_RESTART_COUNT" in variables:
            self.answer(restarts=variables["SLURM_RESTART_COUNT"])
        try:
            return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)
        finally:
            self._end_processes()

    def _end_processes(self) -> None:
        """Kill what the script left, as Slurm does: nothing writes into the run's folder after the job."""
        while left := list(self._processes()):
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)

    def _processes(self) -> Iterator[int]:
        """Find the job's processes by the variable that it gives them. What has ended has none any more."""
        mark = f"\0STAND_IN={self.answers}\0".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    yield int(folder.name)

    def calls(self, *phrases: str) -> list[str]:
        lines = (self.answers / "calls").read_text().splitlines()
        return [line for line in lines if all(phrase in line for phrase in phrases)]

    def attempts(self) -> list[str]:
        return self.calls("srun", "benchmark train")


def option(call: str, name: str) -> str:
    found = re.search(rf"{name}=(\S+)", call)
    assert found is not None, call
    return found[1]
