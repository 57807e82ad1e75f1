"""Other commands, started so that they do not outlive whoever started them."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stage.errors import InputError
from stage.git import REPOSITORY

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent is gone, even by kill -9 (Linux)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run_module(
    arguments: Sequence[str], *, errors: Path | None = None, environment: Mapping[str, str] | None = None
) -> int:
    """Run ``python -m ARGUMENTS`` from the repository's folder, sharing our output; returns its exit status.

    ``errors``: file to which its standard error is added instead of ours. ``environment``: variables besides ours.
    """
    words, variables = [sys.executable, "-m", *arguments], {**os.environ, **(environment or {})}
    if errors is None:
        return _wait(subprocess.Popen(words, cwd=REPOSITORY, env=variables, preexec_fn=end_with_parent))
    with errors.open("a") as file:
        return _wait(subprocess.Popen(words, cwd=REPOSITORY, env=variables, preexec_fn=end_with_parent, stderr=file))


def require_free_port(port: int) -> None:
    """Raise InputError where something listens at ``port`` of this machine."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise InputError(f"port {port}: {error.strerror}; choose another MASTER_PORT or leave it out") from error


def _wait(child: "subprocess.Popen[bytes]") -> int:
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise
