"""Workers that tokenise files, and the files' parts in order as soon as they are made."""

import multiprocessing
import resource
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from typing import Any, Self

from data_prep.corpus.text_blocks import TextBlocks
from data_prep.preprocessing.part_writer import writing_part
from data_prep.preprocessing.shard_parts import (
    Part,
    PartRecord,
    made_earlier,
    read_record,
    require_unchanged,
    write_record,
)
from data_prep.preprocessing.stripe_processes import StripeKilled, make_stripes
from data_prep.preprocessing.user_filter import FilterSource, UserFilter
from data_prep.preprocessing.worker_meter import READING, TOKENISING, Tell, WorkerMeter, timed
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from stage.child_processes import end_with_parent
from stage.errors import InputError
from stage.lock import only_one_in
from stage.progress import Meter, progress

SECONDS_BETWEEN_LOOKS = 0.2
OPEN_FILES, OPEN_FILES_PER_WORKER = 48, 8
"""A worker has two ends of pipes and a sign of life in the process that started it, and inherits those of others."""
KILLED = "a worker was killed, perhaps for memory; what is finished stays, run it again"

Finished = Iterator[Sequence[tuple[Part, PartRecord]]]
"""The parts of each file, file by file."""


@contextmanager
def finished_in_order(
    files: Sequence[Sequence[Part]], encoder: FastTokenizer, filtering: FilterSource | None, workers: int
) -> Iterator[Finished]:
    """Make what is missing; an iterator over the files' finished parts, in the files' order, as soon as they are."""
    require_open_files(workers)
    todo = [parts for parts in files if not made_earlier(parts)]
    total = sum(parts[0].source.bytes for parts in todo)
    most = min(workers, sum(len(parts) for parts in todo))
    with (
        _Makers(encoder, filtering, most) as makers,
        progress("tokenise", total, "bytes", files=len(todo)) as advance,
    ):
        for parts in todo:
            makers.add(parts)
        yield (makers.finished(parts, advance) for parts in files)


def require_open_files(workers: int) -> None:
    """Have so many files open as the pipes to that many workers take. Raises InputError where that is not allowed: the
    first one that cannot be opened would be in some process that others wait for."""
    needed = OPEN_FILES + OPEN_FILES_PER_WORKER * workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(
            f"--workers {workers}: takes {needed} open files, but {hard} are allowed here (ulimit -n); "
            "take fewer workers or raise the limit"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class _Makers:
    """Make the parts of files here, or in worker processes, of which a file takes as many as it has stripes."""

    def __init__(self, encoder: FastTokenizer, filtering: FilterSource | None, workers: int) -> None:
        context = multiprocessing.get_context("fork")  # workers start with the tokenizer loaded
        self._encoder, self._filtering = encoder, filtering
        self._waiting: deque[Sequence[Part]] = deque()
        self._running: dict[Future[None], Sequence[Part]] = {}
        self._unfinished: set[int] = set()
        self._free = workers
        self._told = WorkerMeter(context)
        self._stop = context.Event()
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1:
            shared = (encoder, filtering, self._told, self._stop)
            self._pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=shared)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def add(self, parts: Sequence[Part]) -> None:
        """Make these as soon as there are workers for them."""
        self._waiting.append(parts)
        self._unfinished.add(parts[0].number)
        self._start_what_fits()

    def finished(self, parts: Sequence[Part], advance: Meter) -> Sequence[tuple[Part, PartRecord]]:
        """The parts of a file and their records, once they are made."""
        if self._pool is None and parts[0].number in self._unfinished:
            self._unfinished.discard(parts[0].number)
            make_file(parts, self._encoder, self._filtering, advance)
            advance(0, files=1)
        while parts[0].number in self._unfinished:
            self._wait(advance)
        records = [(part, read_record(part)) for part in parts]
        for part, record in records:
            if record is None:
                raise InputError(f"{part.path('json')}: gone; does another command use the same --output-prefix?")
        return [(part, record) for part, record in records if record is not None]

    def _start_what_fits(self) -> None:
        while self._pool is not None and self._waiting and self._free >= len(self._waiting[0]):
            parts = self._waiting.popleft()
            self._free -= len(parts)
            self._running[self._pool.submit(_make_in_worker, parts)] = parts

    def _wait(self, advance: Meter) -> None:
        """A moment, or until a file is done. Raises what has failed."""
        done, _ = wait(self._running, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
        for future in done:
            parts = self._running.pop(future)
            self._free += len(parts)
            self._unfinished.discard(parts[0].number)
            try:
                future.result()
            except BrokenProcessPool as error:
                raise InputError(KILLED) from error
        self._start_what_fits()
        self._told.pass_on(advance)
        advance(0, files=len(done))


def make_file(parts: Sequence[Part], encoder: FastTokenizer, filtering: FilterSource | None, advance: Tell) -> None:
    """Tokenise one file to its parts, unless somebody else has meanwhile. ``advance`` is told the bytes that are done.

    Raises InputError for a damaged file and, unless they are to be skipped, for a bad line; nothing is left then.
    """
    first = parts[0]
    mend, name = f"another task tokenises {first.source.path}", f"{first.number:05d}.lock"
    with only_one_in(first.folder, mend, name=name) as claim:
        if made_earlier(parts):
            return
        try:
            records = (
                [_make_whole(first, encoder, filtering, advance)]
                if len(parts) == 1
                else make_stripes(parts, encoder, filtering, advance)
            )
        except StripeKilled as error:
            raise InputError(KILLED) from error
        require_unchanged(first)
        claim.require_held()
        for part, record in zip(parts, records, strict=True):
            write_record(part, record)


def _make_whole(part: Part, encoder: FastTokenizer, filtering: FilterSource | None, advance: Tell) -> PartRecord:
    """The file by this process alone."""
    with TextBlocks(part.input, part.method.text_key) as blocks:
        if filtering is None:
            return _written(part, encoder, None, blocks, advance)
        with closing(UserFilter(filtering)) as user_filter:
            return _written(part, encoder, user_filter, blocks, advance)


def _written(
    part: Part, encoder: FastTokenizer, user_filter: UserFilter | None, blocks: TextBlocks, advance: Tell
) -> PartRecord:
    with writing_part(part, encoder, user_filter) as writer:
        for block in timed(blocks, READING, advance):
            started = time.perf_counter()
            writer.add(block)
            advance.spent(TOKENISING, time.perf_counter() - started)
            advance(block.read_bytes)
    return writer.record(blocks.bytes, blocks.md5())


_shared: tuple[FastTokenizer, FilterSource | None, WorkerMeter, Any]
"""Of a worker process: tokenizer, filter, what all tell of themselves, whether to stop."""


class _Stopped(Exception):
    """Another worker failed."""


def _start_worker(*shared: Any) -> None:
    global _shared
    _shared = shared
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop


def _make_in_worker(parts: Sequence[Part]) -> None:
    encoder, filtering, meter, stop = _shared
    make_file(parts, encoder, filtering, _UntilStopped(meter, stop))


class _UntilStopped:
    """Tells the meter, and ends the work where another worker has failed."""

    def __init__(self, meter: WorkerMeter, stop: Any) -> None:
        self._meter, self._stop = meter, stop
        self.spent = meter.spent

    def __call__(self, amount: float) -> None:
        if self._stop.is_set():
            raise _Stopped
        self._meter(amount)
