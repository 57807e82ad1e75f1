"""Any input file as blocks of documents, and its MD5 once it has been read to the end."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

import orjson

from data_prep.corpus.c4 import TEXT_KEY, BadLine, LineBlock, blocks_of, is_plain_text, text_of, texts_of
from data_prep.corpus.input_files import HashedFile, InputFile
from data_prep.corpus.parquet_texts import RowBlock, is_parquet, row_blocks_of, texts_of_rows
from stage.digest import md5_file

Block = LineBlock | RowBlock
COPY_BYTES = 1 << 20


class TextBlocks:
    """The blocks of a file, once. Use as a context manager.

    A Parquet file is not read in the order in which it lies: one that lies elsewhere is copied first, into a temporary
    file that has no name.
    """

    def __init__(self, path: InputFile, key: str) -> None:
        """``key``: of the text in a JSON object, or the column of a Parquet file."""
        self._path, self._key = path, key
        self._file: Path | HashedFile = path if isinstance(path, Path) and is_parquet(path) else HashedFile(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._file, HashedFile):
            self._file.close()

    def __iter__(self) -> Iterator[Block]:
        if not is_parquet(self._path):
            assert isinstance(self._file, HashedFile)
            yield from blocks_of(self._path, self._file)
        elif isinstance(self._file, HashedFile):
            with tempfile.TemporaryFile() as stored:
                _copy(self._file, stored)
                yield from row_blocks_of(self._path, self._key, stored)
        else:
            yield from row_blocks_of(self._path, self._key)

    @property
    def bytes(self) -> int:
        """That were read, after the last block."""
        return self._file.position if isinstance(self._file, HashedFile) else self._file.stat().st_size

    def md5(self) -> str:
        """Hex, after the last block. A local Parquet file is read again for it."""
        return self._file.md5.hexdigest() if isinstance(self._file, HashedFile) else md5_file(self._file)


def _copy(source: HashedFile, copy: BinaryIO) -> None:
    """All of ``source``, into a temporary file. Raises OSError, naming the folder of these, where it has no room."""
    while piece := source.read(COPY_BYTES):
        try:
            copy.write(piece)
            copy.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from error
    copy.seek(0)


def texts_of_block(block: Block, path: InputFile, key: str) -> Iterator[tuple[int, bytes | BadLine]]:
    """Number of each line or row and the document in it, as UTF-8, or what is wrong with it."""
    return texts_of_rows(block, path) if isinstance(block, RowBlock) else texts_of(block, path, key)


def documents_of(path: InputFile) -> Iterator[tuple[bytes, str]]:
    """Every document of a file: its line of JSON, or one made of it where the file has others, and its text.

    Raises InputError for the first that is none.
    """
    with TextBlocks(path, TEXT_KEY) as blocks:
        for block in blocks:
            if isinstance(block, LineBlock) and not block.too_long and not is_plain_text(path):
                for number, line in enumerate(block.lines(), block.first_line):
                    yield line, text_of(line, f"{path}:{number}")
                continue
            for _, text in texts_of_block(block, path, TEXT_KEY):
                if isinstance(text, BadLine):
                    raise text
                yield orjson.dumps({TEXT_KEY: text.decode()}), text.decode()
