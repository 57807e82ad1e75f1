"""Reading C4's files: what is a document, and what is wrong with a file."""

import gzip
import json
from pathlib import Path

import pytest

from data_prep.corpus import c4
from data_prep.corpus.input_files import HashedFile
from data_prep.corpus.text_blocks import documents_of
from data_prep.preprocessing.preprocess import preprocess
from stage.digest import md5_file
from tests.data_prep.shards import sums
from tests.support import assert_refused, command

GOOD = b'{"text": "tree"}\n'
LONG = gzip.compress(GOOD * 50_000, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.json", GOOD + b"{oops\n", "x.json:2: not a JSON object"),
        ("x.json", GOOD + b"\n" + GOOD, "x.json:2: not a JSON object"),
        ("x.json", GOOD + b'["text"]\n', 'x.json:2: no "text" with a string'),
        ("x.json", GOOD + b'{"text": null}\n', 'x.json:2: no "text" with a string'),
        ("x.json", GOOD + b'{"txt": "tree"}\n', 'x.json:2: no "text" with a string'),
        ("x.json", GOOD + b'{"text": "\xff"}\n', "x.json:2: not a JSON object"),
        ("x.json", GOOD + b'{"text": "\\ud800"}\n', "x.json:2: the text holds a lone surrogate"),
        ("x.json.gz", LONG[:-20], "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", gzip.compress(GOOD, mtime=0) + b"garbage", "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", GOOD, "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", b"", "x.json.gz: truncated or damaged gzip file"),
        (
            "x.json.gz",
            LONG[:-8] + bytes(8),
            "x.json.gz: truncated or damaged gzip file",
        ),
        ("x.json", b'{"text": "' + b"a" * (1 << 25) + b'"}\n', "x.json:1: a line of more than"),
    ],
    ids=[
        *("not JSON", "empty line", "list", "no string", "no text", "not UTF-8", "lone surrogate"),
        *("gzip cut off", "garbage after gzip", "not gzip", "empty gzip", "wrong check sum", "endless line"),
    ],
)
def test_bad_input_is_named_and_nothing_is_left(
    name: str, content: bytes, complaint: str, corpus_tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    output = tmp_path / "out"
    arguments = ["--input", tmp_path / name, "--tokenizer", corpus_tokenizer, "--output-prefix", output / "x"]
    assert_refused(command("data_prep", "preprocess", *arguments), complaint)
    assert {path.name for path in output.iterdir()} <= {"x.parts"}  # what other workers had finished
    assert not list(output.rglob("*.partial"))


def test_lines_of_any_ending(corpus_tokenizer: Path, tmp_path: Path) -> None:
    for name, text in (("a", '{"text": "x"}\n{"text": "y"}\n'), ("b", '{"text": "x"}\r\n{"text": "y"}')):
        (tmp_path / f"{name}.json").write_text(text, newline="")
        preprocess([tmp_path / f"{name}.json"], corpus_tokenizer, tmp_path / name, workers=1)
    assert sums(tmp_path / "a") == sums(tmp_path / "b")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
def test_blocks_are_whole_lines(
    block_bytes: int, packed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(c4, "BLOCK_BYTES", block_bytes)
    lines = [json.dumps({"text": "tree " * count}).encode() for count in range(20)]
    content = b"\n".join(lines)  # the last one without its newline
    path = tmp_path / ("x.json.gz" if packed else "x.json")
    path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    source = HashedFile(path)
    blocks = list(c4.blocks_of(path, source))
    source.close()
    assert b"".join(block.data for block in blocks) == content
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    numbered = [line for block in blocks for line in enumerate(block.lines(), block.first_line)]
    assert numbered == list(enumerate(lines, 1))
    assert sum(block.read_bytes for block in blocks) == path.stat().st_size
    assert source.md5.hexdigest() == md5_file(path)
    assert [text for _, text in documents_of(path)] == ["tree " * count for count in range(20)]


def test_what_only_pythons_reader_takes_is_read(tmp_path: Path) -> None:
    assert c4.text_of(b'{"text": "a", "score": NaN}', "x:1") == "a"
    assert c4.text_of(b'{"text": "\\ud83d\\ude00"}', "x:1") == "\U0001f600"
    assert c4.text_of(b'{"text": "\\ud800"}', "x:1") == "\ud800"
    with pytest.raises(c4.BadLine, match="x:1: the text holds a lone surrogate"):
        c4.utf8_of(b'{"text": "\\ud800"}', "x:1")
