"""How long ago this process was started, imports included."""

import os
import time
from pathlib import Path


def seconds_since_process_start() -> float:
    """Seconds since the operating system started this process (Linux)."""
    started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
