"""Reading C4's files: one JSON object per line with the document in "text".

As in the reference (docs/facts/reference.md a.4), only one key is used, ``text`` unless another is given.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from data_prep.corpus.decompress import decompressed
from data_prep.corpus.input_files import InputFile, described
from stage.errors import InputError

BLOCK_BYTES = 1 << 21
"""Of text. Fewer, larger blocks spare what each call costs; beyond this size they leave the processor's caches."""
LONGEST_LINE_BYTES = 1 << 24
TOO_LONG = f"a line of more than {LONGEST_LINE_BYTES} bytes; C4 has none of 1 MB"
TEXT_KEY = "text"


class BadLine(InputError):
    """One line is not a document. The message begins with file and line."""


class _NoDocument(ValueError):
    """The message says why a line holds no document."""


@dataclass(frozen=True)
class LineBlock:
    """Some whole lines of one file."""

    first_line: int
    """Number of the first one in the file, from 1."""
    data: bytes | None
    """None stands for one line of more than LONGEST_LINE_BYTES, of which nothing is kept."""

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each line, and the line without its newline."""
        yield from enumerate((self.data or b"").removesuffix(b"\n").split(b"\n"), self.first_line)


def line_blocks(text: BinaryIO) -> Iterator[LineBlock]:
    """Yield all lines in blocks of about BLOCK_BYTES; the last line may lack its newline.

    A line that is too long is told before its end is looked for, which may be a terabyte away.
    """
    number, rest, is_told = 1, b"", False
    while piece := text.read(BLOCK_BYTES):
        head, newline, tail = piece.rpartition(b"\n")
        if not newline:
            rest = b"" if is_told else rest + tail
            if len(rest) > LONGEST_LINE_BYTES:
                yield LineBlock(number, None)
                rest, is_told = b"", True
            continue
        data = rest + head + newline
        end = data.index(b"\n")
        if is_told or end > LONGEST_LINE_BYTES:
            if not is_told:
                yield LineBlock(number, None)
            number, data, is_told = number + 1, data[end + 1 :], False
        if data:
            yield LineBlock(number, data)
        number, rest = number + data.count(b"\n"), tail
    if rest:
        yield LineBlock(number, rest)


def texts_of(block: LineBlock, key: str = TEXT_KEY) -> Iterator[tuple[int, bytes | str]]:
    """Yield the number of each line of a block with the document in it, as bytes of UTF-8, or with a text that says why
    the line holds none."""
    if block.data is None:
        yield block.first_line, TOO_LONG
        return
    for number, line in block.lines():
        try:
            yield number, _text_of(line, key).encode()
        except UnicodeEncodeError:
            yield number, "the text holds a lone surrogate, which no tokenizer can encode"
        except _NoDocument as reason:
            yield number, str(reason)


def documents_of(file: InputFile | Path) -> Iterator[tuple[bytes, str]]:
    """Yield every document of a file: its line, and its text, which may hold lone surrogates. Raises BadLine for the
    first line that holds none."""
    file = described([file])[0] if isinstance(file, Path) else file
    with file.open() as source, decompressed(str(file), source) as text:
        for block in line_blocks(text):
            if block.data is None:
                raise BadLine(f"{file}:{block.first_line}: {TOO_LONG}")
            for number, line in block.lines():
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
