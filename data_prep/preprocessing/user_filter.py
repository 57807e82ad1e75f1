"""The user's own filter: a Python function from a document to whether, or as what, it is kept.

``FILE.py:FUNCTION`` is called with each document's text and gives True or the text to keep it, another text to put in
its place, False or None to leave it out. It runs in processes of its own (``filter_process``), one beside each worker,
which can crash or hang without taking the worker along; what it prints goes to standard error.
"""

import contextlib
import hashlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_prep.corpus.input_files import InputFile
from data_prep.preprocessing import filter_process
from stage.errors import InputError

SECONDS_PER_BLOCK = 600.0
"""A block has about two megabytes of text."""
SECONDS_TO_END = 5.0
LARGEST_ANSWER = 1 << 30


@dataclass(frozen=True)
class FilterSource:
    """Which function, and its file as it was when the command began."""

    file: Path
    function: str
    md5: str

    @property
    def identity(self) -> str:
        """For manifests: the same where the same code is called, wherever the file lies."""
        return f"{self.file.name}:{self.function} (MD5 {self.md5})"


def parse_filter(text: str) -> FilterSource:
    """Read ``FILE.py:FUNCTION``."""
    name, colon, function = text.rpartition(":")
    file = Path(name)
    if not colon or file.suffix != ".py" or not function.isidentifier():
        raise InputError(f"--filter {text}: expected FILE.py:FUNCTION, such as filters.py:is_english")
    if not file.is_file():
        raise InputError(f"--filter {text}: {file}: no such file")
    return FilterSource(file.absolute(), function, hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest())


class UserFilter:
    """The process in which the function runs: started with the first documents, ended by ``close``."""

    def __init__(self, source: FilterSource) -> None:
        self._source = source
        self._name = f"--filter {source.file}:{source.function}"
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1

    def apply(self, documents: Sequence[bytes], numbers: Sequence[int], path: InputFile) -> list[bytes]:
        """The documents that are kept. ``numbers``: of their lines in ``path``, for messages.

        Raises InputError where the function cannot be imported, raises an exception, gives something else, ends its
        process or takes more than SECONDS_PER_BLOCK.
        """
        if not documents:
            return []
        request = json.dumps([document.decode() for document in documents]).encode()
        answer = json.loads(self._ask(request, f"{path}:{numbers[0]} and following"))
        if "error" in answer:
            line = "" if answer["place"] is None else f"{path}:{numbers[answer['place']]}: "
            raise InputError(f"{line}{self._name}: {answer['error']}")
        return [text.encode() for text in answer["texts"] if text is not None]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            os.close(self._answers)
            self._process = None

    def _ask(self, request: bytes, where: str) -> bytes:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(len(request).to_bytes(filter_process.LENGTH_BYTES, "little") + request)
            process.stdin.flush()
            length = int.from_bytes(self._read(filter_process.LENGTH_BYTES), "little")
            if length > LARGEST_ANSWER:
                raise InputError(f"{where}: {self._name}: made {length:,} bytes of a block of text")
            return self._read(length)
        except (BrokenPipeError, EOFError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_END)
            raise InputError(f"{where}: {self._name}: ended its process (status {process.poll()})") from error
        except TimeoutError as error:
            raise InputError(f"{where}: {self._name}: no answer in {SECONDS_PER_BLOCK:g} s") from error

    def _start(self) -> "subprocess.Popen[bytes]":
        self._answers, theirs = os.pipe()
        script, source = Path(filter_process.__file__), self._source
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script), str(source.file), source.function, source.md5, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=sys.__stderr__,
            pass_fds=[theirs],
        )
        os.close(theirs)
        return self._process

    def _read(self, count: int) -> bytes:
        """Exactly so many bytes."""
        found = bytearray()
        while len(found) < count:
            if not select.select([self._answers], [], [], SECONDS_PER_BLOCK)[0]:
                raise TimeoutError
            piece = os.read(self._answers, min(count - len(found), 1 << 20))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)
