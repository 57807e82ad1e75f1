"""The same documents from every kind of file."""

import functools
import gzip
import itertools
import json
import os
import tempfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from data_prep.corpus import c4
from data_prep.corpus.c4 import BadLine, LineBlock
from data_prep.corpus.text_blocks import TextBlocks, documents_of, texts_of_block
from stage.digest import md5_file
from stage.remote.object_address import parse_address
from stage.remote.remote_file import RemoteFile
from tests.stage.remote.faulty_server import FaultyServer

TEXTS = ["tree", "", "a house\ton a hill", '"quoted"', "\u6587\u5b57"]


def write_as(path: Path, key: str = "text") -> Path:
    lines = "".join(json.dumps({key: text}) + "\n" for text in TEXTS).encode()
    content = {
        ".json": lines,
        ".jsonl": lines,
        ".gz": gzip.compress(lines, mtime=0),
        ".zst": zstandard.compress(lines),
        ".txt": "".join(f"{text}\n" for text in TEXTS).encode(),
    }
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table({key: TEXTS}), path)
    elif path.name.endswith(".txt.gz"):
        path.write_bytes(gzip.compress(content[".txt"], mtime=0))
    else:
        path.write_bytes(content[path.suffix])
    return path


@pytest.mark.parametrize("key", ["text", "content"])
@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.json.gz", "x.jsonl.zst", "x.txt", "x.txt.gz", "x.parquet"])
def test_every_kind_of_file(name: str, key: str, tmp_path: Path) -> None:
    path = write_as(tmp_path / name, key)
    with TextBlocks(path, key) as blocks:
        found = [item for block in blocks for item in texts_of_block(block, path, key)]
        assert blocks.md5() == md5_file(path)
        assert blocks.bytes == path.stat().st_size
    assert found == list(enumerate((text.encode() for text in TEXTS), 1))


@pytest.mark.parametrize("name", ["x.json.gz", "x.jsonl.zst", "x.txt", "x.parquet"])
def test_documents_of_every_kind_have_a_line_of_json(name: str, tmp_path: Path) -> None:
    found = list(documents_of(write_as(tmp_path / name)))
    assert [text for _, text in found] == TEXTS
    assert [json.loads(line)["text"] for line, _ in found] == TEXTS


@pytest.mark.parametrize("fault", [None, "truncated", "without_ranges"])
def test_parquet_elsewhere(fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_as(tmp_path / "x.parquet")
    with FaultyServer(tmp_path, fault=lambda _, number: fault if number == 2 else None) as server:
        file = RemoteFile(parse_address(f"{server.url}/ckpt/x.parquet")).described()
        with TextBlocks(file, "text") as blocks:
            found = [item for block in blocks for item in texts_of_block(block, file, "text")]
            assert (blocks.md5(), blocks.bytes) == (md5_file(path), path.stat().st_size)
        assert found == list(enumerate((text.encode() for text in TEXTS), 1))
        monkeypatch.setattr(tempfile, "TemporaryFile", functools.partial(open, "/dev/full", "w+b", 0))
        with TextBlocks(file, "text") as blocks, pytest.raises(OSError, match=f"No space.*{tempfile.gettempdir()}"):
            list(blocks)


@pytest.mark.parametrize("block_bytes", [7, 64, 100])
def test_lines_that_are_too_long_are_told_one_by_one(
    block_bytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(c4, "LONGEST_LINE_BYTES", 100)
    monkeypatch.setattr(c4, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "x.txt"
    lengths = [5, 100, 101, 0, 300, 301, 7, 99, 101]
    for ending in ("\n", ""):
        path.write_text("\n".join("a" * length for length in lengths) + ending)
        with TextBlocks(path, "text") as blocks:
            found = dict(item for block in blocks for item in texts_of_block(block, path, "text"))
        assert list(found) == list(range(1, len(lengths) + 1))
        for length, text in zip(lengths, found.values(), strict=True):
            if length > 100:
                assert isinstance(text, BadLine)
            else:
                assert text == b"a" * length


def test_a_line_without_an_end_is_told_before_it_is_looked_for(tmp_path: Path) -> None:
    """A terabyte of zeros, which would take an hour to read."""
    path = tmp_path / "x.json"
    path.write_text('{"text": "a"}\n')
    os.truncate(path, 1 << 40)
    with TextBlocks(path, "text") as blocks:
        first, second = itertools.islice(blocks, 2)
    assert isinstance(first, LineBlock)
    assert isinstance(second, LineBlock)
    assert [(block.first_line, block.too_long) for block in (first, second)] == [(1, False), (2, True)]
    with pytest.raises(BadLine, match=r"x\.json:2: a line of more than"):
        list(documents_of(path))


def test_text_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"good\r\n\xff bad\n")
    with TextBlocks(path, "text") as blocks:
        (_, good), (_, bad) = (item for block in blocks for item in texts_of_block(block, path, "text"))
    assert good == b"good"
    assert "x.txt:2: not UTF-8 (invalid start byte at byte 0)" in str(bad)
