"""Fork the processes of an attempt from one that has imported everything: importing takes longer than a drill.

After one fails, the others are killed after a short grace, and the exit status is the highest, as srun has it.
"""

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from foundation.child_processes import require_loopback, reserved_port

GRACE_S = 5.0
"""Seconds from the first failure until the other processes are killed."""
POLL_S = 0.2
PRELOADED = (
    "benchmark.training.process",
    "benchmark.config.run_options",
    "torch._dynamo",  # PyTorch imports it when the first module is made
)


def fork_server() -> Any:
    """Return the multiprocessing context whose processes begin with :data:`PRELOADED` imported."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # several processes share few cores: none may spin
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def run_ranks(
    function: Callable[..., object],
    arguments: Sequence[Any],
    *,
    processes: int,
    environment: Mapping[str, str],
    log: Path,
    limit_s: float = math.inf,
) -> int:
    """Call ``function(*arguments)`` in every process of a new world, wait for their end and return the exit status.

    ``log``: file for their output. Processes that run longer than ``limit_s`` are killed.
    """
    context = fork_server()
    require_loopback()
    with reserved_port() as port:
        ranks = [
            context.Process(
                target=_rank, args=(function, tuple(arguments), _variables(rank, processes, port, environment), log)
            )
            for rank in range(processes)
        ]
        for rank in ranks:
            rank.start()
        try:
            _wait(ranks, limit_s)
        finally:
            for rank in ranks:
                rank.kill()
                rank.join()
    return highest_status([rank.exitcode for rank in ranks])


def highest_status(codes: Sequence[int | None]) -> int:
    """Return the highest status; like srun, count a process ended by a signal as 128 plus the signal's number."""
    return max(128 - code if code < 0 else code for code in codes if code is not None)


def _wait(ranks: Sequence[Any], limit_s: float) -> None:
    """Wait until all are gone, but at most ``limit_s``, and at most :data:`GRACE_S` after one has failed."""
    deadline, failed = time.monotonic() + limit_s, False
    while running := [rank for rank in ranks if rank.exitcode is None]:
        wait([rank.sentinel for rank in running], POLL_S)
        if not failed and any(rank.exitcode for rank in ranks):
            failed, deadline = True, min(deadline, time.monotonic() + GRACE_S)
        if time.monotonic() > deadline:
            return


def _variables(rank: int, processes: int, port: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that torchrun would set."""
    return {
        **environment,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }


def _rank(function: Callable[..., object], arguments: Sequence[Any], variables: dict[str, str], log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)
    os.environ.update(variables)
    function(*arguments)
