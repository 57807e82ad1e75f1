"""Signal a process of a run on the node that it runs on: python3 node_processes.py RUN_DIR ROLE SIGNAL

Roles: "rank 1", "launcher"; "script", the launcher's parent; "batch daemon", the script's parent; "step daemon 1", the
parent of rank 1. Prints the numbers of the processes. Python's own library is enough.
"""

import os
import sys
from pathlib import Path


def processes_of(run_dir: str, role: str) -> list[int]:
    """Return the numbers of the role's processes."""
    if role == "script":
        return [_parent(process) for process in processes_of(run_dir, "launcher")]
    if role == "batch daemon":
        return [_parent(process) for process in processes_of(run_dir, "script")]
    if role.startswith("step daemon "):
        return [_parent(process) for process in processes_of(run_dir, f"rank {role.split()[-1]}")]
    numbers = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            variables = (folder / "environ").read_text(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if run_dir not in words or any(word.endswith(".watchdog") for word in words):
            continue
        is_launcher = "benchmark.launch" in words and "job" in words
        is_rank = "train" in words and f"RANK={role.split()[-1]}" in variables
        if is_launcher if role == "launcher" else is_rank:
            numbers.append(int(folder.name))
    return numbers


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def main(run_dir: str, role: str, number: str) -> int:
    processes = processes_of(run_dir, role)
    for process in processes:
        os.kill(process, int(number))
    print(*processes)
    return 0 if processes else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
