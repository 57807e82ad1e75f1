"""Workers that make parts, and the files' parts in order as soon as they are made."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Self

from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.shard_parts import Part, PartRecord, make_part, read_record
from stage.child_processes import end_with_parent
from stage.errors import InputError
from stage.progress import Advance, progress

SECONDS_BETWEEN_LOOKS = 0.2

Finished = Iterator[Sequence[tuple[Part, PartRecord]]]
"""The parts of each file, file by file."""


@contextmanager
def finished_in_order(files: list[list[Part]], encoder: FastTokenizer, workers: int) -> Iterator[Finished]:
    """Make what is missing; an iterator over the files' finished parts, in the files' order, as soon as they are."""
    todo = [part for parts in files for part in parts if read_record(part) is None]
    total = sum(part.source.bytes / part.stripes for part in todo)
    with _Makers(encoder, min(workers, len(todo))) as makers, progress("tokenise", total, "bytes") as advance:
        for part in todo:
            makers.submit(part)
        yield ([(part, makers.record(part, advance)) for part in parts] for parts in files)


class _Makers:
    """Make parts here, or in worker processes."""

    def __init__(self, encoder: FastTokenizer, workers: int) -> None:
        context = multiprocessing.get_context("fork")  # workers start with the tokenizer loaded
        self._encoder = encoder
        self._waiting: dict[Part, Future[None]] = {}
        self._here: set[Part] = set()
        self._done = context.Value("q", 0)
        self._reported = 0
        self._stop = context.Event()
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1:
            shared = (encoder, self._done, self._stop)
            self._pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def submit(self, part: Part) -> None:
        if self._pool is None:
            self._here.add(part)
        else:
            self._waiting[part] = self._pool.submit(_make_in_worker, part)

    def record(self, part: Part, advance: Advance) -> PartRecord:
        """The record of a part, once it is made."""
        if part in self._here:
            make_part(part, self._encoder, advance)
        elif part in self._waiting:
            while not self._waiting[part].done():
                wait([self._waiting[part]], SECONDS_BETWEEN_LOOKS)
                self._raise_what_failed()
                self._report(advance)
            _result(self._waiting.pop(part))
        record = read_record(part)
        if record is None:
            raise InputError(f"{part.path('json')}: gone; does another command use the same --output-prefix?")
        return record

    def _raise_what_failed(self) -> None:
        for future in self._waiting.values():
            if future.done():
                _result(future)

    def _report(self, advance: Advance) -> None:
        done = self._done.value
        advance(done - self._reported)
        self._reported = done


def _result(future: Future[None]) -> None:
    try:
        future.result()
    except BrokenProcessPool as error:
        raise InputError("a worker was killed, perhaps for memory; what is finished stays, run it again") from error


_shared: tuple[FastTokenizer, Any, Any]  # of a worker process: tokenizer, bytes done by all, whether to stop


class _Stopped(Exception):
    """Another worker failed."""


def _start_worker(*shared: Any) -> None:
    global _shared
    _shared = shared
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop


def _make_in_worker(part: Part) -> None:
    encoder, done, stop = _shared

    def advance(amount: float) -> None:
        if stop.is_set():
            raise _Stopped
        with done.get_lock():
            done.value += int(amount)

    make_part(part, encoder, advance)
