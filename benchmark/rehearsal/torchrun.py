"""Starting other commands; they do not outlive this process."""

import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from stage.child_processes import end_with_parent
from stage.errors import InputError
from stage.git import REPOSITORY

EXIT_CODE = re.compile(r"exitcode\s*:?\s*(-?\d+)")


def run_module(arguments: Sequence[str]) -> int:
    """Run ``python -m ARGUMENTS`` from the repository's folder, sharing our output; returns its exit status."""
    return _wait(subprocess.Popen([sys.executable, "-m", *arguments], cwd=REPOSITORY, preexec_fn=end_with_parent))


def torchrun(arguments: Sequence[str], *, processes: int, port: int | None, log: Path) -> int:
    """Run ``python -m ARGUMENTS`` in several processes under torchrun; returns the exit status of what failed first.

    torchrun wraps every failure in a traceback of its own. Its output and the processes' errors go to ``log``; what
    matters of it is printed: the lines that begin with "error:", or the log's end where there is none.
    """
    if port is not None:
        require_free(port)
    meet = ["--standalone"] if port is None else ["--master-port", str(port)]
    command = ["torch.distributed.run", "--nproc-per-node", str(processes), *meet, "-m", *arguments]
    with log.open("w") as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=REPOSITORY, preexec_fn=end_with_parent, stderr=errors
        )
        status = _wait(child)
    if status == 0:
        return 0
    lines = log.read_text(errors="replace").splitlines()
    shown = list(dict.fromkeys(line for line in lines if line.startswith("error:"))) or lines[-20:]
    print("\n".join(shown), file=sys.stderr)
    codes = [int(code) for code in EXIT_CODE.findall("\n".join(lines)) if int(code) > 0]
    return codes[0] if codes else status


def _wait(child: "subprocess.Popen[bytes]") -> int:
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise


def require_free(port: int) -> None:
    """Raise InputError where something listens at ``port`` of this machine."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise InputError(f"port {port}: {error.strerror}; choose another MASTER_PORT or leave it out") from error
