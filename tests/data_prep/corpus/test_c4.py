"""Reading C4's files: what is a document, and what is wrong with a line or a file."""

import gzip
import io
import json
from pathlib import Path

import pytest

from data_prep.corpus import c4
from data_prep.corpus.c4 import BadLine, LineBlock, documents_of, line_blocks, texts_of
from tests.support import assert_refused, command

GOOD = b'{"text": "tree"}\n'
LONG = gzip.compress(GOOD * 50_000, mtime=0)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{oops", "not a JSON object"),
        (b"", "not a JSON object"),
        (b'["text"]', 'no "text" with a string'),
        (b'{"text": null}', 'no "text" with a string'),
        (b'{"txt": "tree"}', 'no "text" with a string'),
        (b'{"text": "\xff"}', "not a JSON object"),
        (b'{"text": "tree", "url": "\xff"}', "not a JSON object"),
        (b'{"text": "tree"} and', "not a JSON object"),
        (b'{"a": ' * 3000, "not a JSON object"),
        (b'{"text": "\\ud800"}', "the text holds a lone surrogate"),
    ],
)
def test_lines_that_hold_no_document(line: bytes, why: str) -> None:
    ((number, found),) = texts_of(LineBlock(7, line + b"\n"))
    assert number == 7
    assert isinstance(found, str) and found.startswith(why)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"text": "a", "score": NaN}', "a"),
        (b'{"text": "a", "url": "\\ud800"}', "a"),
        (b'{"text": "\\ud83d\\ude00"}', "\U0001f600"),
        (b'{"te\\u0078t": "a"}', "a"),
        (b'{"text": "a", "text": "b"}', "b"),
        (b'\xef\xbb\xbf{"text": "a"}', "a"),
        (b'{"text": "a"}\r', "a"),
        (b'{"text": "a", "number": 1e999}', "a"),
    ],
)
def test_lines_are_read_as_python_reads_them(line: bytes, text: str) -> None:
    assert list(texts_of(LineBlock(1, line))) == [(1, text.encode())]


def test_another_key() -> None:
    assert list(texts_of(LineBlock(1, b'{"text": "a", "body": "b"}\n'), "body")) == [(1, b"b")]


def test_documents_keep_their_lines(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(GOOD + b'{"text": "\\ud800"}')
    assert list(documents_of(tmp_path / "x.json")) == [(GOOD.strip(), "tree"), (b'{"text": "\\ud800"}', "\ud800")]
    (tmp_path / "x.json").write_bytes(GOOD + b"no")
    with pytest.raises(BadLine, match=r"x.json:2: not a JSON object"):
        list(documents_of(tmp_path / "x.json"))


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
def test_blocks_are_whole_lines(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c4, "BLOCK_BYTES", block_bytes)
    lines = [json.dumps({"text": "tree " * count}).encode() for count in range(20)]
    content = b"\n".join(lines)  # the last one without its newline
    blocks = list(line_blocks(io.BytesIO(content)))
    assert b"".join(block.data or b"" for block in blocks) == content
    assert all(block.data is not None and block.data.endswith(b"\n") for block in blocks[:-1])
    assert [line for block in blocks for line in block.lines()] == list(enumerate(lines, 1))


@pytest.mark.parametrize("block_bytes", [3, 10, 20])
@pytest.mark.parametrize("long_at", [0, 1, 2])
@pytest.mark.parametrize("length", [20, 21, 200])
def test_a_line_that_is_too_long_is_told_and_passed_over(
    block_bytes: int, long_at: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c4, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(c4, "LONGEST_LINE_BYTES", 20)
    lines = [b"one", b"two", b"three"]
    lines[long_at] = b"x" * length
    for content in (b"\n".join(lines), b"\n".join(lines) + b"\n"):
        blocks = list(line_blocks(io.BytesIO(content)))
        told = [block.first_line for block in blocks if block.data is None]
        found = dict(line for block in blocks if block.data is not None for line in block.lines())
        expected = dict(enumerate(lines, 1))
        if length > 20:
            del expected[long_at + 1]
        assert told == ([long_at + 1] if length > 20 else [])
        assert found == expected


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.json", GOOD + b"{oops\n", "x.json:2: not a JSON object"),
        ("x.json.gz", LONG[:-20], "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", gzip.compress(GOOD, mtime=0) + b"garbage", "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", GOOD, "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", b"", "x.json.gz: truncated or damaged gzip file"),
        ("x.json", b'{"text": "' + b"a" * (1 << 25) + b'"}\n', "x.json:1: a line of more than"),
    ],
    ids=["bad line", "gzip cut off", "garbage after gzip", "not gzip", "empty gzip", "endless line"],
)
def test_bad_input_is_named_and_nothing_is_left(
    name: str, content: bytes, complaint: str, corpus_tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    output = tmp_path / "out"
    arguments = ["--input", tmp_path / name, "--tokenizer", corpus_tokenizer, "--output-prefix", output / "x"]
    assert_refused(command("data_prep", "preprocess", *arguments), complaint)
    assert not list(output.iterdir())
