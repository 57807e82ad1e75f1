"""Reading C4's files: what is a document, and what is wrong with a line or a file."""

import io
import json
from pathlib import Path

import pytest

from data_prep.corpus import c4
from data_prep.corpus.c4 import BadLine, documents_of, line_blocks, texts_of

GOOD = b'{"text": "tree"}\n'


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
    ((number, found),) = texts_of(7, line + b"\n")
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
    assert list(texts_of(1, line)) == [(1, text.encode())]


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
    blocks = list(line_blocks("x", io.BytesIO(content)))
    assert b"".join(block for _, block in blocks) == content
    assert all(block.endswith(b"\n") for _, block in blocks[:-1])
    found = [line for block in blocks for line in texts_of(*block)]
    assert found == [(number, json.loads(line)["text"].encode()) for number, line in enumerate(lines, 1)]
    monkeypatch.setattr(c4, "LONGEST_LINE_BYTES", 50)
    with pytest.raises(BadLine, match=r"x:2: a line of more than 50 bytes"):
        list(line_blocks("x", io.BytesIO(b"short\n" + b"l" * (3 << 20))))
