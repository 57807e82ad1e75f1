"""A user's filter: what it gives, and what it may do wrong, in a process of its own."""

import os
import time
from pathlib import Path

import pytest

from data_prep.preprocessing import user_filter
from data_prep.preprocessing.preprocess import Reading, preprocess
from data_prep.preprocessing.user_filter import UserFilter, parse_filter
from data_prep.token_files.indexed_dataset import IndexedDataset
from stage.errors import InputError
from stage.manifest import read_manifest
from tests.data_prep.shards import Sums, sums
from tests.support import assert_refused, command

GOOD = """
import os, sys
print("printed")
def long(text):
    print("seen")
    return len(text) > 300
def shout(text):
    return text.upper() if "a" in text else None
def same(text):
    return os.read(0, 1) == b""  # nothing of ours to be read there
"""


def written(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "filters.py"
    path.write_text(content)
    return path


def apply(tmp_path: Path, body: str, texts: list[str]) -> list[str]:
    source = parse_filter(f"{written(tmp_path, f'def f(text):{chr(10)}    {body}{chr(10)}')}:f")
    filtering = UserFilter(source)
    try:
        documents = [text.encode() for text in texts]
        return [text.decode() for text in filtering.apply(documents, list(range(11, 11 + len(texts))), Path("c4.json"))]
    finally:
        filtering.close()


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("return True", ["one", "\u4e8c", ""]),
        ("return None", []),
        ("return 'n' in text", ["one"]),
        ("return text + '!'", ["one!", "\u4e8c!", "!"]),
    ],
)
def test_what_a_filter_gives(body: str, kept: list[str], tmp_path: Path) -> None:
    assert apply(tmp_path, body, ["one", "\u4e8c", ""]) == kept


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("return 1", "c4.json:11: --filter .*filters.py:f: TypeError: gave int, expected True, False, None or a text"),
        ("return text[7]", r"c4.json:11: --filter .*: IndexError: string index out of range \(filters.py:2\)"),
        ("return '\\ud800'", "UnicodeEncodeError"),
        ("import os; os._exit(3)", r"c4.json:11 and following: --filter .*: ended its process \(status 3\)"),
        ("raise SystemExit", r"ended its process \(status 0\)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"ended its process \(status -11\)"),
    ],
)
def test_what_a_filter_does_wrong(body: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=complaint):
        apply(tmp_path, body, ["one", "two"])


def test_a_filter_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_filter, "SECONDS_PER_BLOCK", 0.3)
    started = time.monotonic()
    with pytest.raises(InputError, match=r"no answer in 0.3 s"):
        apply(tmp_path, "import time; time.sleep(1000)", ["one"])
    assert time.monotonic() - started < 100


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("def g(text): pass", "AttributeError: module 'filters' has no attribute 'f'"),
        ("f = 3", "TypeError: f is not a function"),
        ("import none_of_that_name", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(5)", "ended its process"),
    ],
)
def test_files_that_are_no_filter(content: str, complaint: str, tmp_path: Path) -> None:
    filtering = UserFilter(parse_filter(f"{written(tmp_path, content)}:f"))
    with pytest.raises(InputError, match=complaint):
        filtering.apply([b"one"], [1], Path("c4.json"))
    filtering.close()


def test_a_file_that_changes_is_not_run(tmp_path: Path) -> None:
    source = parse_filter(f"{written(tmp_path, GOOD)}:long")
    written(tmp_path, GOOD.replace("300", "3"))
    filtering = UserFilter(source)
    with pytest.raises(InputError, match="changed while it was in use"):
        filtering.apply([b"one"], [1], Path("c4.json"))
    filtering.close()


@pytest.mark.parametrize("text", ["x.py", "x.py:", "x.txt:f", "x.py:f()", ":f", "none.py:f"])
def test_what_names_no_filter(text: str) -> None:
    with pytest.raises(InputError, match=r"expected FILE.py:FUNCTION|no such file"):
        parse_filter(text)


@pytest.mark.parametrize("workers", [1, 3])
def test_filtered_datasets(
    workers: int, shards: list[Path], tokenizer: Path, expected: Sums, small_blocks: None, tmp_path: Path
) -> None:
    source = parse_filter(f"{written(tmp_path, GOOD)}:long")
    result = preprocess(shards[:2], tokenizer, tmp_path / "x", workers=workers, reading=Reading(filter=source))
    assert result is not None
    assert 0 < result.filtered_documents < 300
    assert result.documents + result.filtered_documents == 300
    assert len(IndexedDataset(tmp_path / "x")) == result.documents
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    assert manifest.options["filter"] == f"filters.py:long (MD5 {source.md5})"
    all_kept = Reading(filter=parse_filter(f"{tmp_path / 'filters.py'}:same"))
    preprocess(shards, tokenizer, tmp_path / "y", workers=workers, reading=all_kept)
    assert sums(tmp_path / "y") == expected


def test_by_command(shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    arguments = ["--input", shards[0], "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", "--workers", 1]
    filters = written(tmp_path, GOOD)
    done = command("data_prep", "preprocess", *arguments, "--filter", f"{filters}:long")
    assert done.returncode == 0, done.stderr
    assert "filtered out" in done.stdout
    assert "printed" in done.stderr
    assert "printed" not in done.stdout
    done = command("data_prep", "preprocess", *arguments, "--filter", f"{filters}:shout")
    assert_refused(done, "was made from other inputs or options")


def test_no_process_is_left(tmp_path: Path) -> None:
    filtering = UserFilter(parse_filter(f"{written(tmp_path, GOOD)}:long"))
    filtering.apply([b"one"], [1], Path("c4.json"))
    assert filtering._process is not None
    pid = filtering._process.pid
    filtering.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
