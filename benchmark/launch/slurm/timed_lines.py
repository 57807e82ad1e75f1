"""The log of a job: every line with the time, in Slurm's output and in the run's folder."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from benchmark.run_record.file_names import job_log

TIMED = re.compile(rb"\d\d:\d\d:\d\d ")
"""Pattern of the beginning of a line from the run's console."""


@contextmanager
def timed_lines(run_dir: Path) -> Iterator[None]:
    """Add the time to all output of this process and its children until the block ends; copy it to
    RUN_DIR/slurm_JOB.out."""
    copy = job_log(run_dir, os.environ.get("SLURM_JOB_ID", "0"))
    streams = [os.dup(1), os.dup(2)]
    reading, writing = os.pipe()
    passing = threading.Thread(target=_pass_on, args=(os.fdopen(reading, "rb"), streams[0], copy), daemon=True)
    passing.start()
    for stream in (1, 2):
        os.dup2(writing, stream)
    os.close(writing)
    try:
        yield
    finally:
        for stream in (1, 2):
            os.dup2(streams[stream - 1], stream)
        passing.join(10)  # a process that srun has left may hold the other end


def _pass_on(lines: BinaryIO, output: int, copy: Path) -> None:
    log: BinaryIO | None = None
    for line in lines:
        stamp = "%Y-%m-%d " if TIMED.match(line) else "%Y-%m-%d %H:%M:%S "
        timed = time.strftime(stamp).encode() + line
        with suppress(OSError):
            os.write(output, timed)
        with suppress(OSError):
            log = log or copy.open("ab", buffering=0)
            log.write(timed)
