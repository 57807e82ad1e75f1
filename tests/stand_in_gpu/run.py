"""Run a command on GPUs that are not there.

python -m tests.stand_in_gpu.run --python PYTHON -- -m benchmark slice gpt3_175b

PyTorch's CUDA build runs as it is: its dispatch, checks, allocator, streams, process groups. Below it the functions of
the CUDA runtime, cuBLAS and NCCL that it calls are those of stand_in.cpp, which notes every call, keeps account of
memory and launches nothing. So what is found is real: operators that refuse their arguments, waits of the host, kernels
by name and number, shapes of products, messages and their streams, the allocator's memory. Numbers are not: no kernel
computes, so losses are zero and whatever checks results fails. cuDNN finds no device, which tries what a run does
without it. Between processes NCCL moves nothing.

Needs Linux on x86-64, g++, CUDA's headers (--cuda), and a Python with PyTorch's CUDA build and its NCCL package
(--python).
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("stand_in.cpp")
STEP_ENDS = re.compile(r"nccl all-reduce \S+ bytes 72 ")
"""The message of loss, norm and flags, of which each step has one."""


def build(folder: Path, python: str, cuda: Path) -> Path:
    """The library, also by the name of the driver's."""
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


def summary(log: Path) -> list[str]:
    """Of one process."""
    lines = log.read_text(errors="replace").splitlines()
    said = [line for line in lines if line.startswith(("CONTEXT", "BAD", "OUT OF"))]
    memory = [int(found[1]) for line in lines if (found := re.search(r", (\d+) used$", line))]
    said.append(f"{max(memory, default=0) / 2**30:.2f} GiB taken from the device at most")
    ends = [number for number, line in enumerate(lines) if STEP_ENDS.search(line)]
    if len(ends) < 3:
        return [*said, f"{len(lines)} calls, no whole step among them"]
    step = lines[ends[-2] : ends[-1]]
    kinds = collections.Counter(_kind(line) for line in step)
    return [*said, "between two steps' last messages:", *(f"  {count:6} {kind}" for kind, count in kinds.most_common())]


def _kind(line: str) -> str:
    """A call without its numbers."""
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
    options.add_argument("command", nargs="+", help="what follows the Python")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder, given.python, given.cuda)
        variables = {
            "LD_PRELOAD": str(library),
            "LD_LIBRARY_PATH": name,
            "STAND_IN_LOG": str(folder / "log"),
            "STAND_IN_DEVICES": str(given.devices),
            "STAND_IN_NAME": given.name,
            "STAND_IN_MIB": str(given.memory_mib),
        }
        status = subprocess.run([given.python, *given.command], env={**os.environ, **variables}).returncode
        for log in sorted(folder.glob("log.*")):
            print(f"process {log.suffix[1:]}")
            print("\n".join(f"  {line}" for line in summary(log)))
    return status


if __name__ == "__main__":
    sys.exit(main())
