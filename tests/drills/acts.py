"""What faults do to the process that they strike."""

import ctypes
import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmark.run_record.file_names import checkpoints_folder
from tests.drills.faults import Fault

Arguments = tuple[Any, ...]
WAKE = "import os, sys, time; time.sleep(float(sys.argv[1])); os.kill(int(sys.argv[2]), 18)"
"""Continue a stopped process after so many seconds."""
FOREVER_S = 3600.0


@dataclass
class Strike:
    """A fault that strikes in this process."""

    fault: Fault
    run_dir: Path
    count: int = 0
    """How often it has struck."""
    since_s: float = 0.0
    """Monotonic time of the first."""
    over: bool = False
    """It will not strike again."""


def kill(strike: Strike, arguments: Arguments) -> Arguments:
    """As the kernel does for lack of memory, and an operator with kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)
    return arguments


def stop(strike: Strike, arguments: Arguments) -> Arguments:
    os.kill(os.getpid(), signal.SIGSTOP)
    return arguments


def stop_for_a_while(strike: Strike, arguments: Arguments) -> Arguments:
    words = [sys.executable, "-S", "-c", WAKE, str(strike.fault.amount), str(os.getpid())]
    subprocess.Popen(words, start_new_session=True)
    return stop(strike, arguments)


def fail(strike: Strike, arguments: Arguments) -> Arguments:
    raise RuntimeError(f"injected by a drill, amount {strike.fault.amount:g}")


def take_all_memory(strike: Strike, arguments: Arguments) -> Arguments:
    """PyTorch's own error, as it comes from its allocator."""
    torch.empty(1 << 60, dtype=torch.int8)
    return arguments


def hold_the_interpreter(strike: Strike, arguments: Arguments) -> Arguments:
    """Calls into C that keep the lock: no other thread of the process can run Python. A signal ends one of them."""
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(int(FOREVER_S))


def deadlock(strike: Strike, arguments: Arguments) -> Arguments:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
    return arguments


def lose_the_watchdog(strike: Strike, arguments: Arguments) -> Arguments:
    for process in children():
        if b"benchmark.training.liveness.watchdog" in Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGKILL)
    return arguments


def children() -> list[int]:
    """Processes that this one started and that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # gone since
        if parent == os.getpid():
            found.append(int(path.parent.name))
    return found


def jump_the_clock(strike: Strike, arguments: Arguments) -> Arguments:
    """The clock of the day; the monotonic one does not jump."""
    clock, clock_ns, offset = time.time, time.time_ns, strike.fault.amount
    setattr(time, "time", lambda: clock() + offset)  # noqa: B010
    setattr(time, "time_ns", lambda: clock_ns() + int(offset * 1e9))  # noqa: B010
    return arguments


def ask_to_stop(strike: Strike, arguments: Arguments) -> Arguments:
    os.kill(os.getpid(), signal.SIGTERM)
    return arguments


def spoil_the_gradient(strike: Strike, arguments: Arguments) -> Arguments:
    """Of the optimizer that the call is about; as often as ``amount`` says."""
    gradient = next(gradient for gradient in arguments[0]._gradients() if gradient.numel())
    gradient.view(-1)[0] = float(strike.fault.act)
    strike.over = strike.count >= strike.fault.amount
    return arguments


def spoil_the_labels(strike: Strike, arguments: Arguments) -> Arguments:
    """Of a step's micro-batches: its loss is far off."""
    state, batches, *others = arguments
    spoiled = [
        dataclasses.replace(batch, labels=(batch.labels * 7 + 3) % (batch.labels.max() + 1)) for batch in batches
    ]
    strike.over = strike.count >= strike.fault.amount
    return (state, spoiled, *others)


def flip_a_weight(strike: Strike, arguments: Arguments) -> Arguments:
    """One bit of one of this process's weights."""
    weight = next(tensor for tensor in arguments[0].tensors().values() if tensor.numel())
    local = weight.to_local() if hasattr(weight, "to_local") else weight
    bits = local.detach().view(-1).view(torch.int32)
    bits[0] ^= 1 << int(strike.fault.amount)
    return arguments


def fill_the_disk(strike: Strike, arguments: Arguments) -> Arguments:
    strike.over = strike.count >= strike.fault.amount
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
"""Audit events of Python that change the folder of their first argument."""


def make_read_only(strike: Strike, arguments: Arguments) -> Arguments:
    """Refuse, for ``amount`` seconds, what would change anything below the run's folder, as a file system does that was
    mounted again to be read only. Rights would not do: the superuser has them all."""
    until_s = time.monotonic() + (strike.fault.amount or FOREVER_S)
    folder, write = strike.run_dir.absolute(), os.pwrite

    def refuse(event: str, words: Arguments) -> None:
        if event in CHANGES or (event == "open" and words[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            inside = isinstance(words[0], (str, Path)) and Path(words[0]).absolute().is_relative_to(folder)
            if inside and time.monotonic() < until_s:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(words[0]))

    def refused_write(handle: int, *words: Any) -> int:
        refuse("os.rename", (Path(f"/proc/self/fd/{handle}").readlink(),))
        return write(handle, *words)

    sys.addaudithook(refuse)
    setattr(os, "pwrite", refused_write)  # noqa: B010
    return arguments


def make_checkpoints_unreadable(strike: Strike, arguments: Arguments) -> Arguments:
    """Give errors for ``amount`` seconds, as a disk that is away, for every file of a checkpoint that is opened."""
    until_s = time.monotonic() + strike.fault.amount
    folder = checkpoints_folder(strike.run_dir.absolute())

    def refuse(event: str, words: Arguments) -> None:
        if event == "open" and isinstance(words[0], (str, Path)) and time.monotonic() < until_s:
            path = Path(words[0]).absolute()
            if path.is_relative_to(folder) and path.is_file():
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    sys.addaudithook(refuse)
    return arguments


def fail_for_a_while(strike: Strike, arguments: Arguments) -> Arguments:
    """A sink that refuses what it is given."""
    strike.over = time.monotonic() - strike.since_s > strike.fault.amount
    if strike.over:
        return arguments
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def hang(strike: Strike, arguments: Arguments) -> Arguments:
    time.sleep(FOREVER_S)
    return arguments


def touch_trigger(strike: Strike, arguments: Arguments) -> Arguments:
    """A person asks by a file; the step takes ``amount`` seconds longer."""
    (strike.run_dir / strike.fault.act.removeprefix("touch ")).touch()
    time.sleep(strike.fault.amount)
    return arguments


def delete_checkpoints(strike: Strike, arguments: Arguments) -> Arguments:
    shutil.rmtree(strike.run_dir / "checkpoints", ignore_errors=True)
    return arguments


ACTS: dict[str, Callable[[Strike, Arguments], Arguments]] = {
    "kill": kill,
    "stop": stop,
    "stop for a while": stop_for_a_while,
    "raise": fail,
    "out of memory": take_all_memory,
    "hold the interpreter": hold_the_interpreter,
    "deadlock": deadlock,
    "slow": lambda strike, arguments: arguments,  # after the call: injector.py
    "lose the watchdog": lose_the_watchdog,
    "clock jump": jump_the_clock,
    "ask to stop": ask_to_stop,
    "nan": spoil_the_gradient,
    "inf": spoil_the_gradient,
    "spike": spoil_the_labels,
    "flip a weight": flip_a_weight,
    "disk full": fill_the_disk,
    "read-only": make_read_only,
    "unreadable checkpoints": make_checkpoints_unreadable,
    "sink fails": fail_for_a_while,
    "sink hangs": hang,
    "touch save": touch_trigger,
    "touch exit": touch_trigger,
    "delete checkpoints": delete_checkpoints,
}
REPEATED: frozenset[str] = frozenset({"nan", "inf", "spike", "disk full", "sink fails", "slow"})
"""They strike again until they say that they are over; the others strike once."""
