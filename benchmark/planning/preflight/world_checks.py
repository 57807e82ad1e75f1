"""Check all processes of a job together: sums, links, clocks, a shared folder."""

import contextlib
import fcntl
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from benchmark.planning.preflight.machine_checks import existing
from benchmark.planning.preflight.preflight_check import (
    RUN,
    WORLD,
    CheckingProcess,
    CheckResult,
    Measurements,
    PreflightCheck,
)
from benchmark.planning.slice.device_rates import synchronize

MIB = 2**20
SUMMED_BYTES = {"cuda": 256 * MIB, "cpu": 4 * MIB}
SENT_BYTES = {"cuda": 64 * MIB, "cpu": 1 * MIB}
REPETITIONS = 3
SLOW_LINK = 0.5
"""Least share of the median speed of links of the same kind, within a machine or between two."""
MOST_APART_S = 1.0
PATIENCE_S = 10.0
"""Seconds that a network file system may take to show another machine's new file."""
_SHARED = "{} and its locks are the same for all"


@dataclass(frozen=True)
class Timed:
    """Result of a message: whether the right data arrived, and how fast."""

    right: bool
    gb_per_s: float
    between: str = ""
    """Whether the message stayed on its machine, in words; empty if that does not matter."""


def _timed(
    process: CheckingProcess, sent: float, message: Callable[[], Tensor], expected: float, between: str = ""
) -> Timed:
    """Send ``sent`` bytes several times and keep the fastest time. All numbers that ``message`` returns must equal
    ``due``."""
    best, right = float("inf"), True
    for _ in range(1 + REPETITIONS):
        process.together.barrier()
        started = time.perf_counter()
        received = message()
        synchronize(process.together.device)
        best = min(best, time.perf_counter() - started)
        right = right and bool((received == expected).all())
    return Timed(right, sent / best / 1e9, between)


def sums(process: CheckingProcess) -> Timed:
    """Time an all-reduce; its bandwidth counts 2 (n - 1) / n of the bytes, as NCCL's tests do."""
    world, size = process.together, SUMMED_BYTES[process.kind]
    numbers = iter([torch.full((size // 4,), world.rank + 1.0, device=world.device) for _ in range(1 + REPETITIONS)])

    def add() -> Tensor:
        summed = next(numbers)
        dist.all_reduce(summed)
        return summed

    return _timed(process, 2 * (world.size - 1) / world.size * size, add, world.size * (world.size + 1) / 2)


def right_sums(process: CheckingProcess, measurements: Measurements) -> CheckResult:
    wrong = [name for name, timed in measurements if not timed.right]
    if wrong:
        return CheckResult("FAILED", f"wrong sums at {', '.join(wrong[:3])}", "see NCCL_DEBUG=INFO; leave the node out")
    slowest = min(timed.gb_per_s for _, timed in measurements)
    return CheckResult(
        "ok", f"{SUMMED_BYTES[process.kind] // MIB} MiB over {process.together.size} processes at {slowest:.2f} GB/s"
    )


def ring(process: CheckingProcess) -> Timed:
    """Send to the next process while the previous process sends to this one, all at once."""
    world = process.together
    hosts = world.hosts()
    next_rank, previous_rank = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    sent = torch.full((SENT_BYTES[process.kind] // 4,), float(world.rank), device=world.device)
    received = torch.empty_like(sent)

    def exchange() -> Tensor:
        messages = [dist.P2POp(dist.isend, sent, next_rank), dist.P2POp(dist.irecv, received, previous_rank)]
        for message in dist.batch_isend_irecv(messages):
            message.wait()
        return received

    between = "within a machine" if hosts[previous_rank] == hosts[world.rank] else "between machines"
    return _timed(process, SENT_BYTES[process.kind], exchange, previous_rank, between)


def links_alike(process: CheckingProcess, measurements: Measurements) -> CheckResult:
    wrong = [name for name, timed in measurements if not timed.right]
    if wrong:
        return CheckResult("FAILED", f"wrong data arrived at {', '.join(wrong[:3])}", "leave the node out")
    ranges = []
    for kind in sorted({timed.between for _, timed in measurements}):
        links = {name: timed.gb_per_s for name, timed in measurements if timed.between == kind}
        slowest, median = min(links, key=links.__getitem__), statistics.median(links.values())
        if process.kind == "cuda" and links[slowest] < SLOW_LINK * median:  # processes on CPUs wait for cores, too
            text = f"{slowest} receives {links[slowest]:.2f} GB/s {kind}; the median is {median:.2f}"
            return CheckResult("warning", text, "see its link (ibstat, nvidia-smi nvlink -s), or leave the node out")
        ranges.append(f"{links[slowest]:.2f} to {max(links.values()):.2f} GB/s {kind}")
    return CheckResult("ok", ", ".join(ranges))


def now(process: CheckingProcess) -> float:
    """Return the clock's time just after all processes have met; the delay until each learns of the meeting is part of
    the difference."""
    process.together.barrier()
    return time.time()


def clocks_agree(process: CheckingProcess, measurements: Measurements) -> CheckResult:
    by_time = sorted(measurements, key=lambda measurement: measurement[1])
    first, last = by_time[0], by_time[-1]
    difference_s = last[1] - first[1]
    if difference_s > MOST_APART_S:
        return CheckResult(
            "FAILED", f"{first[0]} is {difference_s:.1f} s behind {last[0]}", "synchronise the clocks (chrony, ntpd)"
        )
    return CheckResult("ok", f"at most {difference_s:.3f} s apart")


def shared_folder(process: CheckingProcess) -> CheckResult:
    """Let rank 0 write and lock a file beside ``run_dir``; check that the others see the file and its lock."""
    world = process.together
    number = world.from_rank_0(secrets.randbits(32))
    probe, content = existing(process.run.run_dir) / f".preflight-{number}", str(number)
    with contextlib.ExitStack() as cleanup:
        try:  # every process meets both barriers, also after a failure
            try:
                if world.rank == 0:
                    cleanup.callback(probe.unlink, missing_ok=True)
                    lock = cleanup.enter_context(probe.open("w"))
                    lock.write(content)
                    lock.flush()
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            finally:
                world.barrier()
            return _seen_by_peer(probe, content) if world.rank > 0 else CheckResult("ok", _SHARED.format(probe.parent))
        finally:
            world.barrier()


def _seen_by_peer(probe: Path, content: str) -> CheckResult:
    deadline = time.monotonic() + PATIENCE_S
    while not (probe.exists() and probe.read_text() == content):
        if time.monotonic() > deadline:
            mend = "put --run-dir on a file system that all nodes share"
            return CheckResult("FAILED", f"{probe.parent} is another folder than rank 0's", mend)
        time.sleep(0.2)
    with contextlib.suppress(BlockingIOError), probe.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        text = f"{probe.parent}: another process can take the lock that rank 0 holds"
        return CheckResult("FAILED", text, "mount it with flock")
    return CheckResult("ok", _SHARED.format(probe.parent))


WORLD_CHECKS = (
    PreflightCheck(
        "shared folder", "checkpoints that each node writes for itself", "process", shared_folder, needs=RUN | WORLD
    ),
    PreflightCheck("clocks", "logs whose times do not agree", "process", now, clocks_agree, needs=WORLD),
    PreflightCheck("all-reduce", "wrong or slow sums", "process", sums, right_sums, needs=WORLD),
    PreflightCheck("ring", "one slow or wrong link", "process", ring, links_alike, needs=WORLD),
)
