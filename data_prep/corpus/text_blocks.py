"""Any input file as blocks of documents, and its MD5 once it has been read to the end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from data_prep.corpus.c4 import BadLine, LineBlock, blocks_of, texts_of
from data_prep.corpus.input_files import HashedFile, InputFile
from data_prep.corpus.parquet_texts import RowBlock, is_parquet, row_blocks_of, texts_of_rows
from stage.digest import md5_file

Block = LineBlock | RowBlock


class TextBlocks:
    """The blocks of a file, once. Use as a context manager."""

    def __init__(self, path: InputFile, key: str) -> None:
        """``key``: of the text in a JSON object, or the column of a Parquet file. That is not read from elsewhere: its
        parts are not wanted in the order in which they lie."""
        self._path, self._key = path, key
        self._file: Path | HashedFile = path if isinstance(path, Path) and is_parquet(path) else HashedFile(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._file, HashedFile):
            self._file.close()

    def __iter__(self) -> Iterator[Block]:
        if isinstance(self._file, HashedFile):
            yield from blocks_of(self._path, self._file)
        else:
            yield from row_blocks_of(self._file, self._key)

    @property
    def bytes(self) -> int:
        """That were read, after the last block."""
        return self._file.position if isinstance(self._file, HashedFile) else self._file.stat().st_size

    def md5(self) -> str:
        """Hex, after the last block. A Parquet file is read in another order than it lies in, so it is read again."""
        return self._file.md5.hexdigest() if isinstance(self._file, HashedFile) else md5_file(self._file)


def texts_of_block(block: Block, path: InputFile, key: str) -> Iterator[tuple[int, bytes | BadLine]]:
    """Number of each line or row and the document in it, as UTF-8, or what is wrong with it."""
    return texts_of_rows(block, path) if isinstance(block, RowBlock) else texts_of(block, path, key)
