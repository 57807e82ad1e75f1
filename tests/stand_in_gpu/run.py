"""Run a command on stand-ins for GPUs.

python -m tests.stand_in_gpu.run --python PYTHON -- -m benchmark slice gpt3_175b
python -m tests.stand_in_gpu.run --python PYTHON --compute --processes 4 -- -m benchmark train rehearsal ...

PyTorch's CUDA build runs unchanged: its dispatch, checks, allocator, streams, process groups. The functions of the CUDA
runtime, cuBLAS and NCCL that it calls are those of stand_in.cpp, which logs every call, counts memory and launches
nothing. Findings are real: operators that refuse their arguments, waits of the host, kernels by name and number, shapes
of products, messages and their streams, the allocator's memory. Without --compute numbers are not real: no kernel
computes, and NCCL moves nothing between processes. Losses are zero, and every check of a result fails.

With --compute a CPU does the work of kernels (computing.py), and NCCL's messages are files (messages.h). Streams work
as late as events allow, in an order that --seed draws (queues.h). Numbers are those of a run on CPUs, except for the
order of sums; code that reads or frees memory too early gets other numbers.

cuDNN finds no device, so the command runs without it.

Needs Linux on x86-64, g++, CUDA's headers (--cuda), and a Python with PyTorch's CUDA build and its NCCL package
(--python).
"""

import argparse
import collections
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("stand_in.cpp")
STEP_ENDS = re.compile(r"nccl all-reduce \S+ bytes 72 ")
"""The message of loss, norm and flags: one in each step."""


def build(folder: Path, python: str, cuda: Path) -> Path:
    """Return the library; it also has the name of the driver's."""
    found = subprocess.run(
        [python, "-c", "import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])"],
        capture_output=True,
        text=True,
        check=True,
    )
    library = folder / "libstand_in.so"
    includes = [f"-I{cuda}/include", f"-I{found.stdout.strip()}/include"]
    words = ["g++", "-O1", "-fPIC", "-shared", "-std=c++17", "-w", *includes, str(SOURCE), "-o", str(library)]
    subprocess.run(words, check=True)
    (folder / "libcuda.so.1").symlink_to(library)
    return library


def run(words: list[str], variables: dict[str, str], processes: int) -> int:
    """Run the words in each process of one world, with torchrun's variables if there are several; return the highest
    status."""
    environment = {**os.environ, **variables}
    if processes > 1:
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        environment |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
        environment |= {"ATTEMPT": "0001", "OMP_NUM_THREADS": "1"}
    places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {} for rank in range(processes)]
    started = [subprocess.Popen(words, env={**environment, **place}) for place in places]
    try:
        while any(one.poll() is None for one in started) and not any(one.poll() for one in started):
            time.sleep(0.2)
        for one in started:  # where one has failed, the others may wait for it for ever
            if any(other.poll() for other in started) and one.poll() is None:
                one.terminate()
        return max(abs(one.wait()) for one in started)
    finally:
        for one in started:
            one.kill()


def summary(log: Path) -> list[str]:
    """Return the lines about the log of one process."""
    lines = log.read_text(errors="replace").splitlines()
    said = [line for line in lines if line.startswith(("CONTEXT", "BAD", "OUT OF", "nccl split with"))]
    memory = [int(found[1]) for line in lines if (found := re.search(r", (\d+) used$", line))]
    said.append(f"{max(memory, default=0) / 2**30:.2f} GiB taken from the device at most")
    ends = [number for number, line in enumerate(lines) if STEP_ENDS.search(line)]
    if len(ends) < 3:
        return [*said, f"{len(lines)} calls, no whole step among them"]
    step = lines[ends[-2] : ends[-1]]
    kinds = collections.Counter(_kind(line) for line in step)
    return [*said, "between two steps' last messages:", *(f"  {count:6} {kind}" for kind, count in kinds.most_common())]


def _kind(line: str) -> str:
    """Return a call without its numbers."""
    if line.startswith("kernel"):
        return "kernel " + line.rsplit(" ", 1)[-1][:90]
    return re.sub(r"0x\w+|\(nil\)|\b\d+\b", "#", line)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", default=sys.executable)
    options.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda"))
    options.add_argument("--devices", type=int, default=1)
    options.add_argument("--name", default="NVIDIA H200")
    options.add_argument("--memory-mib", type=int, default=143_771)
    options.add_argument("--processes", type=int, default=1, help="each has a device of its own")
    options.add_argument("--compute", action="store_true")
    options.add_argument("--seed", type=int, default=0, help="of the order of streams, with --compute")
    options.add_argument("command", nargs="+", help="what follows the Python")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder, given.python, given.cuda)
        variables = {
            "LD_PRELOAD": str(library),
            "LD_LIBRARY_PATH": name,
            "STAND_IN_LOG": str(folder / "log"),
            "STAND_IN_DEVICES": str(max(given.devices, given.processes)),
            "STAND_IN_NAME": given.name,
            "STAND_IN_MIB": str(given.memory_mib),
            "STAND_IN_COMPUTE": str(int(given.compute)),
            "STAND_IN_DIR": name,
            "STAND_IN_SEED": str(given.seed),
        }
        computing = ["-m", "tests.stand_in_gpu.computing"] if given.compute else []
        status = run([given.python, *computing, *given.command], variables, given.processes)
        for log in sorted(folder.glob("log.*")):
            print(f"process {log.suffix[1:]}")
            print("\n".join(f"  {line}" for line in summary(log)))
    return status


if __name__ == "__main__":
    sys.exit(main())
