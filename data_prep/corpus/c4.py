"""Read C4's files: one JSON object per line with the document in "text".

As in the reference (docs/facts/reference.md a.4), only one key is used, ``text`` unless another is given.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from data_prep.corpus.input_files import InputFile, decompressed, describe_inputs
from foundation.errors import InputError

BLOCK_BYTES = 1 << 21
"""Bytes of text per block. Larger blocks reduce the cost of calls, but exceed the processor's caches."""
LONGEST_LINE_BYTES = 1 << 24
TEXT_KEY = "text"


class BadLine(InputError):
    """A line that is not a document. The message begins with file and line."""


class _NoDocument(ValueError):
    """A line holds no document; the message gives the reason."""


def line_blocks(name: str, text: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines in blocks of about BLOCK_BYTES, each with the number of its first line, from 1.

    The last line may lack its newline. Raises BadLine, naming the file ``name``, for a line that does not end.
    """
    number, unfinished_line = 1, b""
    while chunk := text.read(BLOCK_BYTES):
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            block = unfinished_line + head + newline
            yield number, block
            number, unfinished_line = number + block.count(b"\n"), tail
        else:
            unfinished_line += tail
        if len(unfinished_line) > LONGEST_LINE_BYTES:
            raise BadLine(f"{name}:{number}: a line of more than {LONGEST_LINE_BYTES} bytes; C4 has none of 1 MB")
    if unfinished_line:
        yield number, unfinished_line


def _numbered_lines(first_line: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    return enumerate(block.removesuffix(b"\n").split(b"\n"), first_line)


def texts_of(first_line: int, block: bytes, key: str = TEXT_KEY) -> Iterator[tuple[int, bytes | str]]:
    """Yield each line's number with its document as bytes of UTF-8, or with a text that says why the line holds
    none."""
    for number, line in _numbered_lines(first_line, block):
        try:
            yield number, _text_of(line, key).encode()
        except UnicodeEncodeError:
            yield number, "the text holds a lone surrogate, which no tokenizer can encode"
        except _NoDocument as reason:
            yield number, str(reason)


def documents_of(file: InputFile | Path) -> Iterator[tuple[bytes, str]]:
    """Yield every document of a file: its line, and its text, which may hold lone surrogates.

    Raises BadLine for the first line without a document.
    """
    file = describe_inputs([file])[0] if isinstance(file, Path) else file
    with file.open() as source, decompressed(str(file), source) as text:
        for block in line_blocks(str(file), text):
            for number, line in _numbered_lines(*block):
                try:
                    yield line, _text_of(line, TEXT_KEY)
                except _NoDocument as reason:
                    raise BadLine(f"{file}:{number}: {reason}") from reason


def _text_of(line: bytes, key: str) -> str:
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            fields = json.loads(line)  # the reference's reader, which takes a little more
        except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
            raise _NoDocument(f"not a JSON object ({error})") from error
    text = fields.get(key) if isinstance(fields, dict) else None
    if not isinstance(text, str):
        raise _NoDocument(f'no "{key}" with a string in this line')
    return text
