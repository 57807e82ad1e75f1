"""Input files that lie elsewhere: read by a process of their own, and passed on as they come.

TensorStore has threads, and a process that has some is not one to fork; workers fork. So whatever asks a server is a
process that does nothing else. It reads ahead as far as the pipe holds, a MiB or two.
"""

import io
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from stage.child_processes import end_with_parent
from stage.errors import InputError
from stage.remote.remote_file import RemoteFile

FORK = multiprocessing.get_context("fork")
ASKED_AT_ONCE = 16


class ReaderEnded(InputError):
    """Its process was killed."""


def describe_all(files: Sequence[RemoteFile]) -> list[RemoteFile]:
    """All with their facts as their servers tell them now. Raises InputError for the first that cannot be had."""
    if not files:
        return []
    with _in_a_process(lambda: [_described(files)], "the addresses") as answers:
        found: list[RemoteFile] = next(answers)
    return found


def _described(files: Sequence[RemoteFile]) -> list[RemoteFile]:
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(RemoteFile.described, files))


class RemoteBytes(io.RawIOBase):
    """The bytes of a remote file, once. Nothing is asked before the first is read."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._process = ExitStack()
        self._pieces: Iterator[bytes] | None = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises InputError for what cannot be had."""
        if self._pieces is None:
            self._pieces = self._process.enter_context(_in_a_process(self._file.read, str(self._file)))
        if not self._ready:
            self._ready = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self._process.close()
        super().close()


@contextmanager
def _in_a_process(make: Callable[[], Any], what: str) -> Iterator[Iterator[Any]]:
    """An iterator over what ``make()`` gives in a process of its own; what it raises is raised here."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_send_all, args=(make, theirs, ours), daemon=True)
    process.start()
    theirs.close()
    try:
        yield _received(ours, what)
    finally:
        ours.close()
        process.terminate()  # it may be waiting for an answer
        process.join()


def _received(pipe: "Connection[Any, Any]", what: str) -> Iterator[Any]:
    while True:
        try:
            ended, found = pipe.recv()
        except (EOFError, OSError):  # between two messages, or within one
            raise ReaderEnded(f"{what}: the process that reads it was killed; run the command again") from None
        if not ended:
            yield found
        elif found is None:
            return
        else:
            raise found


def _send_all(make: Callable[[], Any], pipe: "Connection[Any, Any]", not_ours: "Connection[Any, Any]") -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever reads ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # TensorStore tells of each credentials file that is not there
    not_ours.close()
    with suppress(BrokenPipeError):  # nobody wants the rest
        try:
            for found in make():
                pipe.send((False, found))
        except InputError as error:
            pipe.send((True, error))
        except Exception:
            pipe.send((True, RuntimeError(f"in the process that reads from elsewhere:\n{traceback.format_exc()}")))
        else:
            pipe.send((True, None))
