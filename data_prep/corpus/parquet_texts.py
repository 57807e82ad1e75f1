"""Documents in a column of strings of a Parquet file (needs pyarrow)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from data_prep.corpus.c4 import LONGEST_LINE_BYTES, BadLine
from data_prep.corpus.input_files import InputFile
from stage.errors import InputError
from stage.optional_packages import import_optional

PARQUET_SUFFIX = ".parquet"
BATCH_ROWS = 1024
LARGEST_ROW_GROUP = 1 << 34
"""Bytes of one column, decompressed. Files in use have some hundred MiB."""


@dataclass(frozen=True)
class RowBlock:
    """Some rows of one file."""

    first_row: int
    """Number of the first one in the file, from 1."""
    texts: list[str | None]
    read_bytes: int
    """Bytes of the file that they take, about."""


def is_parquet(path: InputFile) -> bool:
    return path.suffix == PARQUET_SUFFIX


def row_blocks_of(path: InputFile, column: str, stored: BinaryIO | None = None) -> Iterator[RowBlock]:
    """The file's rows in blocks of 1,024; ``stored`` is it, opened, where it does not lie at ``path``.

    Raises InputError for a damaged file or one without such a column.
    """
    parquet = import_optional("pyarrow.parquet", "pyarrow", f"{path}")
    arrow = import_optional("pyarrow", "pyarrow", f"{path}")
    try:
        size = os.fstat(stored.fileno()).st_size if stored is not None else Path(str(path)).stat().st_size
        with parquet.ParquetFile(path if stored is None else stored, page_checksum_verification=True) as file:
            _require_column(path, file, column)
            rows = max(1, file.metadata.num_rows)
            reported, first = 0, 1
            for batch in file.iter_batches(BATCH_ROWS, columns=[column], use_threads=False):
                texts = batch.column(0).to_pylist()
                first += len(texts)
                read = (first - 1) * size // rows
                yield RowBlock(first - len(texts), texts, read - reported)
                reported = read
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: truncated or damaged Parquet file ({error}); fetch it again") from error


def _require_column(path: InputFile, file: Any, column: str) -> None:
    names = file.schema_arrow.names
    if column not in names:
        raise InputError(f'{path}: no column "{column}", but {", ".join(names[:20])}; choose one by --text-key')
    kind = str(file.schema_arrow.field(column).type)
    if kind not in ("string", "large_string", "string_view"):
        raise InputError(f'{path}: column "{column}" holds {kind}, not strings; choose another by --text-key')
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        columns = [group.column(place) for place in range(group.num_columns)]
        sizes = {one.path_in_schema: one.total_uncompressed_size for one in columns}
        if not 0 <= sizes.get(column, 0) <= LARGEST_ROW_GROUP:
            raise InputError(f"{path}: row group {number} announces {sizes[column]:,} bytes, more than is read at once")


def texts_of_rows(block: RowBlock, path: InputFile) -> Iterator[tuple[int, bytes | BadLine]]:
    """Number of each row and the document in it, as UTF-8, or what is wrong with it."""
    for number, text in enumerate(block.texts, block.first_row):
        if text is None:
            yield number, BadLine(f"{path}:{number}: no text in this row")
        elif len(text) > LONGEST_LINE_BYTES:
            yield (
                number,
                BadLine(f"{path}:{number}: a text of more than {LONGEST_LINE_BYTES} bytes; C4 has none of 1 MB"),
            )
        else:
            yield number, text.encode()
