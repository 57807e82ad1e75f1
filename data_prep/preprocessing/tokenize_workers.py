"""Worker processes that tokenise files, one file each at a time."""

import ctypes
import multiprocessing
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from data_prep.corpus.input_files import InputFile
from data_prep.preprocessing.token_part import PartMaker
from foundation.child_processes import begin_worker
from foundation.errors import InputError
from foundation.progress import Meter

FORK = multiprocessing.get_context("fork")
DOING = ("reading and decompressing", "tokenising")
SECONDS_BETWEEN_LOOKS = 0.2
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3


class Stopped(Exception):
    """Another worker has failed."""


def make_parts(maker: PartMaker, files: Mapping[str, InputFile], workers: int, meter: Meter) -> None:
    """Make the parts of ``files``, by the parts' names, in up to ``workers`` processes.

    The processes are forked, so they begin with the tokenizer loaded. Raises the first error of a worker; the other
    workers then stop, and finished parts stay.
    """
    if not files:
        return
    work_done, stop = FORK.Array("d", 1 + len(DOING)), FORK.Event()  # bytes, and the seconds of each of DOING
    reported = work_done[:]
    pool = ProcessPoolExecutor(min(workers, len(files)), FORK, initializer=_begin, initargs=(maker, work_done, stop))
    try:
        running = {pool.submit(_make, name, file) for name, file in files.items()}
        while running:
            ended, running = wait(running, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
            amounts = work_done[:]
            for position, activity in enumerate(DOING, 1):
                meter.spent(activity, amounts[position] - reported[position])
            meter(amounts[0] - reported[0])
            reported = amounts
            for future in ended:
                future.result()
                meter(0, files=1)
    except BrokenProcessPool as error:
        raise InputError("a worker was killed, perhaps for memory; finished files stay, run it again") from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


_maker: PartMaker
_work_done: Any
_stop: Any
"""A worker process's maker of parts, the work of all processes, and the sign that another worker has failed."""


def _begin(maker: PartMaker, work_done: Any, stop: Any) -> None:
    global _maker, _work_done, _stop
    _maker, _work_done, _stop = maker, work_done, stop
    begin_worker()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Have glibc keep freed arrays of a few megabytes for the next ones (other systems know no mallopt).

    Otherwise a forked process would return them and get fresh pages, which the system has to clear: that took 10 to 15
    % of two workers' processor time (docs/notes/data_speed.md).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, size in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 256 << 20), (M_TOP_PAD, 32 << 20)):
            mallopt(parameter, size)


def _make(name: str, file: InputFile) -> None:
    _maker.make(name, file, _tell)


def _tell(*amounts: float) -> None:
    """Add up work of all processes. Raises Stopped if another one has failed."""
    if _stop.is_set():
        raise Stopped
    with _work_done.get_lock():
        for position, amount in enumerate(amounts):
            _work_done[position] += amount
