"""One file shared by several processes: one reads, decompresses and hashes it, and deals its blocks out to the others.

Each of the others makes one stripe. Block i goes to stripe i modulo their number, so it does not matter who is faster.
"""

import contextlib
import multiprocessing
import queue
import threading
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any

from data_prep.corpus.text_blocks import Block, TextBlocks
from data_prep.preprocessing.part_writer import writing_part
from data_prep.preprocessing.shard_parts import Part, PartRecord
from data_prep.preprocessing.user_filter import FilterSource, UserFilter
from data_prep.preprocessing.worker_meter import READING, TOKENISING, Tell, timed
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from stage.child_processes import end_with_parent
from stage.errors import InputError

BLOCKS_AHEAD = 3
"""That wait in a stripe's process, of two megabytes each."""
FORK = multiprocessing.get_context("fork")


class StripeKilled(Exception):
    """A stripe's process ended without a word."""


def make_stripes(
    parts: Sequence[Part], encoder: FastTokenizer, filtering: FilterSource | None, advance: Tell
) -> list[PartRecord]:
    """Make all stripes of one file; their files are published, the records are not.

    Raises what making a part does, and StripeKilled.
    """
    stripes: list[_Stripe] = []
    try:
        with TextBlocks(parts[0].input, parts[0].method.text_key) as blocks:
            for part in parts:
                stripes.append(_Stripe(part, encoder, filtering, stripes))
            for number, block in enumerate(timed(blocks, READING, advance)):
                started = time.perf_counter()
                stripes[number % len(stripes)].send(block)
                advance.spent(TOKENISING, time.perf_counter() - started)  # it waits where they are slower
                advance(block.read_bytes)
            end = (blocks.bytes, blocks.md5())
        for stripe in stripes:
            stripe.send(end)
        return [stripe.result() for stripe in stripes]
    finally:
        for stripe in stripes:
            stripe.stop()


class _Stripe:
    """A process that makes one stripe, as the reader sees it."""

    def __init__(
        self, part: Part, encoder: FastTokenizer, filtering: FilterSource | None, earlier: "list[_Stripe]"
    ) -> None:
        theirs, self._blocks = FORK.Pipe(duplex=False)
        self._results, their_results = FORK.Pipe(duplex=False)
        self.ours = (self._blocks, self._results)
        to_close = [connection for stripe in earlier for connection in stripe.ours]
        arguments = (part, encoder, filtering, theirs, their_results, [*to_close, *self.ours])
        self._process: ForkProcess = FORK.Process(target=_make_stripe, args=arguments)
        self._process.start()
        theirs.close()
        their_results.close()

    def send(self, what: "Block | tuple[int, str]") -> None:
        """Raises what has gone wrong there."""
        try:
            self._blocks.send(what)
        except BrokenPipeError:
            self.result()
            raise

    def result(self) -> PartRecord:
        """What it has made, once it is done."""
        try:
            found = self._results.recv()
        except EOFError:
            raise StripeKilled from None
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, PartRecord)
        return found

    def stop(self) -> None:
        for connection in self.ours:
            connection.close()
        self._process.join()


def _make_stripe(
    part: Part,
    encoder: FastTokenizer,
    filtering: FilterSource | None,
    blocks: "Connection[Any, Any]",
    results: "Connection[Any, Any]",
    not_ours: "list[Connection[Any, Any]]",
) -> None:
    """In the stripe's process."""
    end_with_parent()
    for connection in not_ours:  # or nobody would ever see the end of these pipes
        connection.close()
    user_filter = UserFilter(filtering) if filtering is not None else None
    ahead: queue.Queue[Any] = queue.Queue(BLOCKS_AHEAD)
    threading.Thread(target=_receive, args=(blocks, ahead), daemon=True).start()
    try:
        with writing_part(part, encoder, user_filter) as writer:
            while not isinstance(what := ahead.get(), tuple):
                if what is None:  # the reader has failed
                    raise _ReaderFailed
                writer.add(what)
        _tell(results, writer.record(*what))
    except _ReaderFailed:
        pass
    except (InputError, OSError) as error:
        _tell(results, error)
    except Exception:
        _tell(results, RuntimeError(f"in the process of stripe {part.stripe}:\n{traceback.format_exc()}"))
    finally:
        if user_filter is not None:
            user_filter.close()
        results.close()
        blocks.close()


def _tell(results: "Connection[Any, Any]", what: PartRecord | BaseException) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader has given up for another stripe's sake
        results.send(what)


class _ReaderFailed(Exception):
    """The reader is gone, or has met an error of its own."""


def _receive(blocks: "Connection[Any, Any]", ahead: "queue.Queue[Any]") -> None:
    """Take blocks from the pipe as soon as there is room for them."""
    try:
        while True:
            what = blocks.recv()
            ahead.put(what)
            if isinstance(what, tuple):
                return
    except (EOFError, OSError):
        ahead.put(None)
