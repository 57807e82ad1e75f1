"""Worker processes that tokenise files, one file each at a time."""

import ctypes
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from data_prep.corpus.input_files import InputFile
from data_prep.preprocessing.token_piece import READING, TOKENISING, PieceFacts, PieceMaker
from stage.addresses import Address
from stage.child_processes import begin_worker
from stage.errors import InputError
from stage.progress import Meter

FORK = multiprocessing.get_context("fork")
"""Workers begin with the tokenizer loaded."""
SECONDS_BETWEEN_LOOKS = 0.2
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3

Finished = Callable[[str, PieceFacts], None]
"""Called with each piece's name and facts as soon as it is finished; may raise."""


def make_pieces(
    maker: PieceMaker, files: Mapping[str, InputFile], workers: int, meter: Meter, finished: Finished
) -> None:
    """Make the pieces of ``files``, which are given by the pieces' names, in up to ``workers`` processes.

    Raises the first error of a worker, or of ``finished``; the other workers then stop, and finished pieces stay.
    """
    workers = min(workers, len(files))
    if workers < 2 and not any(isinstance(file.place, Address) for file in files.values()):
        for name, file in files.items():
            finished(name, maker.make(name, file, meter))
            meter(0, files=1)
        return
    shared = _SharedMeter()
    pool = ProcessPoolExecutor(workers, FORK, initializer=_begin, initargs=(maker, shared))
    try:
        running = {pool.submit(_make, name, file): name for name, file in files.items()}
        while running:
            done, _ = wait(running, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
            shared.pass_on(meter)
            for future in done:
                finished(running.pop(future), _result(future))
                meter(0, files=1)
    finally:
        shared.stop.set()
        pool.shutdown(cancel_futures=True)


def _result(future: "Future[PieceFacts]") -> PieceFacts:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise InputError("a worker was killed, perhaps for memory; finished files stay, run it again") from error


class _SharedMeter:
    """Adds up the work of several processes in memory that they share."""

    def __init__(self) -> None:
        self._sums = FORK.Array("d", 3)
        """Bytes that are done, seconds of reading, seconds of tokenising."""
        self._passed_on = [0.0, 0.0, 0.0]
        self.stop = FORK.Event()

    def __call__(self, amount: float) -> None:
        if self.stop.is_set():
            raise _Stopped
        self._add(0, amount)

    def spent(self, doing: str, seconds: float) -> None:
        self._add(1 if doing == READING else 2, seconds)

    def _add(self, place: int, amount: float) -> None:
        with self._sums.get_lock():
            self._sums[place] += amount

    def pass_on(self, meter: Meter) -> None:
        """Tell ``meter`` what is new since the last time."""
        now = self._sums[:]
        done, reading, tokenising = (new - old for new, old in zip(now, self._passed_on, strict=True))
        meter.spent(READING, reading)
        meter.spent(TOKENISING, tokenising)
        meter(done)
        self._passed_on = now


class _Stopped(Exception):
    """Another worker has failed."""


_maker: PieceMaker
_meter: _SharedMeter
"""Both belong to a worker process."""


def _begin(maker: PieceMaker, meter: _SharedMeter) -> None:
    global _maker, _meter
    _maker, _meter = maker, meter
    begin_worker()
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Have glibc keep freed arrays of a few megabytes for the next ones (other systems know no mallopt).

    A forked process would give them back and get fresh pages, which the system has to clear: that took 10 to 15 % of
    two workers' processor time (docs/notes/data_speed.md).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, size in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 256 << 20), (M_TOP_PAD, 32 << 20)):
            mallopt(parameter, size)


def _make(name: str, file: InputFile) -> PieceFacts:
    return _maker.make(name, file, _meter)
