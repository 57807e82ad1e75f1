"""Start other commands so that they do not outlive the process that started them."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from foundation.errors import InputError
from foundation.git import REPOSITORY
from foundation.this_machine import process_control

PR_SET_PDEATHSIG = 1
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C has ended, after its message (``foundation.errors``)."""
LOOPBACK_S = 10.0
"""Most seconds for a connection to this machine itself."""
TO_END_ITSELF_S = 2.0


def end_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent ends, even by kill -9; only Linux does it."""
    process_control(PR_SET_PDEATHSIG, signal.SIGTERM)


def begin_worker() -> None:
    """Prepare a process that multiprocessing has started: it ends with its parent, and leaves Ctrl-C to the parent."""
    end_with_parent()
    starter = multiprocessing.parent_process()
    if starter is not None and os.getppid() != starter.pid:  # it was killed before this process could ask
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_module(
    arguments: Sequence[str], *, errors: Path | None = None, environment: Mapping[str, str] | None = None
) -> int:
    """Run ``python -m ARGUMENTS`` from the repository's folder, sharing our output; return its exit status.

    Ctrl-C reaches both: the child reports it, and this process leaves with the same status. ``errors``: file to which
    the child's standard error is appended. ``environment``: additional variables.
    """
    words, variables = [sys.executable, "-m", *arguments], {**os.environ, **(environment or {})}
    with nullcontext() if errors is None else errors.open("a") as file:
        child = subprocess.Popen(words, cwd=REPOSITORY, env=variables, preexec_fn=end_with_parent, stderr=file)
        try:
            return child.wait()
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                child.wait(TO_END_ITSELF_S)
            raise SystemExit(INTERRUPTED) from None
        finally:
            child.terminate()
            child.wait()


def require_free_port(port: int) -> None:
    """Raise InputError if something listens at ``port`` of this machine, or the number is no port."""
    if not 0 < port < 1 << 16:
        raise InputError(f"port {port}: expected 1 to 65535; choose another MASTER_PORT or leave it out")
    with _reusable_socket() as probe:
        try:
            probe.bind(("", port))
        except OSError as error:
            raise InputError(f"port {port}: {error.strerror}; choose another MASTER_PORT or leave it out") from error


def require_loopback() -> None:
    """Raise InputError if processes of this machine cannot meet at "localhost", as in a new network namespace."""
    with _reusable_socket() as server:
        server.bind(("", 0))
        server.listen(1)
        try:
            socket.create_connection(("localhost", server.getsockname()[1]), LOOPBACK_S).close()
        except OSError as error:
            raise InputError(
                f"localhost: {error.strerror or error}, and the processes of this machine meet there; bring the "
                "loopback interface up (ip link set lo up)"
            ) from error


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port of this machine that no other program is given until the block ends, for processes to meet at.

    A socket is bound to it and does not listen. The kernel then does not give the port to programs that ask for any
    port. A program that names it with SO_REUSEADDR, as PyTorch's store does, can bind it, too.
    """
    with _reusable_socket() as reservation:
        reservation.bind(("", 0))
        yield reservation.getsockname()[1]


def _reusable_socket() -> socket.socket:
    """Return an unbound socket for IPv4 and, if the machine has it, IPv6."""
    is_dual = socket.has_dualstack_ipv6()
    endpoint = socket.socket(socket.AF_INET6 if is_dual else socket.AF_INET)
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_dual:
        endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return endpoint
