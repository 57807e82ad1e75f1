"""Reading C4's files: one JSON object per line with the document in "text"; also lines that are documents themselves.

As in the reference (docs/facts/reference.md a.4), only one key is used, ``text`` unless another is given. A file whose
name ends in ``.txt`` (or ``.txt.gz``, ``.txt.zst``) holds one document per line.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from data_prep.corpus.input_files import HashedFile, InputFile, decompressed
from stage.errors import InputError

BLOCK_BYTES = 1 << 21
"""Of text. Fewer, larger ones spare what each call costs; beyond this the caches are too small."""
LONGEST_LINE_BYTES = 1 << 24
TEXT_KEY = "text"
TEXT_SUFFIX = ".txt"


class BadLine(InputError):
    """One line is not a document. The message begins with file and line."""


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of one file."""

    first_line: int
    """Number of the first one in the file, from 1."""
    data: bytes
    read_bytes: int
    """Bytes of the file on disk that were read for it."""
    too_long: bool = False
    """Stands for one line of more than LONGEST_LINE_BYTES, of which nothing was kept."""

    def lines(self) -> list[bytes]:
        return self.data.removesuffix(b"\n").split(b"\n")


def blocks_of(path: InputFile, source: HashedFile) -> Iterator[LineBlock]:
    """The file as blocks of about 2 MiB of whole lines, the last of which may lack its newline.

    A line that is too long is told before its end is looked for: that may be a terabyte away.
    """
    first_line, reported, rest, length = 1, 0, b"", 0  # length: of the line that is not at its end
    told = False  # that this line is too long
    with decompressed(path, source) as stream:
        while piece := stream.read(BLOCK_BYTES):
            head, newline, tail = piece.rpartition(b"\n")
            if not newline:
                length += len(tail)
                rest = rest + tail if length <= LONGEST_LINE_BYTES else b""
                if length > LONGEST_LINE_BYTES and not told:
                    yield LineBlock(first_line, b"", source.position - reported, too_long=True)
                    reported, told = source.position, True
                continue
            if length + len(piece) > LONGEST_LINE_BYTES:
                end, more, following = head.partition(b"\n")
                if length + len(end) > LONGEST_LINE_BYTES:
                    if not told:
                        yield LineBlock(first_line, b"", source.position - reported, too_long=True)
                        reported = source.position
                    first_line, rest, told = first_line + 1, b"", False
                    head, newline = following, newline if more else b""
            data = b"".join((rest, head, newline))
            if data:
                yield LineBlock(first_line, data, source.position - reported)
                reported = source.position
            first_line, rest, length = first_line + data.count(b"\n"), tail, len(tail)
    if length and not told:
        yield LineBlock(first_line, rest, source.position - reported, length > LONGEST_LINE_BYTES)


def is_plain_text(path: InputFile) -> bool:
    """Whether the lines are documents, not JSON."""
    return TEXT_SUFFIX in path.suffixes[-2:]


def texts_of(block: LineBlock, path: InputFile, key: str) -> Iterator[tuple[int, bytes | BadLine]]:
    """Number of each line and the document in it, as UTF-8, or what is wrong with it."""
    if block.too_long:
        where = f"{path}:{block.first_line}"
        yield block.first_line, BadLine(f"{where}: a line of more than {LONGEST_LINE_BYTES} bytes; C4 has none of 1 MB")
        return
    plain = is_plain_text(path)
    for number, line in enumerate(block.lines(), block.first_line):
        try:
            yield number, _utf8(line, path, number) if plain else utf8_of(line, f"{path}:{number}", key)
        except BadLine as error:
            yield number, error


def _utf8(line: bytes, path: InputFile, number: int) -> bytes:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise BadLine(f"{path}:{number}: not UTF-8 ({error.reason} at byte {error.start})") from error
    return line.removesuffix(b"\r")


def text_of(line: bytes, where: str, key: str = TEXT_KEY) -> str:
    """The document in one line. ``where`` names file and line for the error."""
    try:
        fields = orjson.loads(line)
    except ValueError:
        fields = _python_json(line, where)  # the reference's reader, which takes a little more
    text = fields.get(key) if isinstance(fields, dict) else None
    if not isinstance(text, str):
        raise BadLine(f'{where}: no "{key}" with a string in this line')
    return text


def utf8_of(line: bytes, where: str, key: str = TEXT_KEY) -> bytes:
    """The document in one line, as UTF-8."""
    try:
        return text_of(line, where, key).encode()
    except UnicodeEncodeError as error:
        raise BadLine(f"{where}: the text holds a lone surrogate, which no tokenizer can encode") from error


def _python_json(line: bytes, where: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise BadLine(f"{where}: not a JSON object ({error})") from error
