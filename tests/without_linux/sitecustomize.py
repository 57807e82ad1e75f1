"""Takes from a Python process what Linux has and other systems do not. Python imports it where PYTHONPATH names this
folder, in the processes that such a process starts, too."""

import ctypes
import os
import sys
import time
from typing import Any

for module, names in (
    (os, ("sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open", "O_DIRECT", "posix_fadvise")),
    (time, ("CLOCK_BOOTTIME",)),
):
    for name in names:
        delattr(module, name)

_attribute = ctypes.CDLL.__getattr__


def _without_linux(library: ctypes.CDLL, name: str) -> Any:
    if name in ("prctl", "syscall", "mallopt"):
        raise AttributeError(name)
    return _attribute(library, name)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


ctypes.CDLL.__getattr__ = _without_linux  # type: ignore[method-assign]
sys.addaudithook(_refuse)
