"""Parquet files: the documents of a column, and what is wrong with a file."""

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from data_prep.corpus.c4 import BadLine
from data_prep.corpus.parquet_texts import row_blocks_of, texts_of_rows
from stage.errors import InputError

TEXTS = [f"document {number}, \u00e4\u6587" for number in range(3000)]


def write(path: Path, texts: list[str | None], kind: pyarrow.DataType | None = None) -> Path:
    table = pyarrow.table({"id": range(len(texts)), "text": pyarrow.array(texts, kind or pyarrow.string())})
    pyarrow.parquet.write_table(table, path, row_group_size=700, compression="none", write_page_checksum=True)
    return path


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()])
def test_rows_in_order(kind: pyarrow.DataType, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [*TEXTS], kind)
    blocks = list(row_blocks_of(path, "text"))
    found = [item for block in blocks for item in texts_of_rows(block, path)]
    assert found == list(enumerate((text.encode() for text in TEXTS), 1))
    assert sum(block.read_bytes for block in blocks) == path.stat().st_size


def test_a_row_without_a_text(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", ["a", None, "b"])
    (block,) = row_blocks_of(path, "text")
    found = list(texts_of_rows(block, path))
    assert [number for number, _ in found] == [1, 2, 3]
    assert isinstance(found[1][1], BadLine)
    assert "x.parquet:2: no text in this row" in str(found[1][1])


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", ["a"])
    with pytest.raises(InputError, match='no column "content", but id, text; choose one by --text-key'):
        list(row_blocks_of(path, "content"))
    with pytest.raises(InputError, match='column "id" holds int64, not strings'):
        list(row_blocks_of(path, "id"))
    whole = write(tmp_path / "whole.parquet", [*TEXTS]).read_bytes()
    for content in (
        b"",
        b"PAR1",
        whole[:-1],
        whole[: len(whole) // 2],
        b"\0" * 5000,
        whole.replace(b"document 1500,", b"document 1600,", 1),  # found by the check sum of its page
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match="truncated or damaged Parquet file"):
            list(row_blocks_of(path, "text"))
