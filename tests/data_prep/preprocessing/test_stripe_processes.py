"""One file shared by several processes: the same bytes, and what goes wrong in any of them is told."""

import gzip
import os
import signal
from pathlib import Path

import pytest

from data_prep.corpus.text_blocks import Block, TextBlocks
from data_prep.preprocessing.part_writer import PartWriter
from data_prep.preprocessing.preprocess import preprocess
from stage.errors import InputError
from tests.data_prep.shards import Sums, sums


@pytest.fixture
def joined(shards: list[Path], tmp_path: Path) -> Path:
    path = tmp_path / "joined.json.gz"
    path.write_bytes(b"".join(shard.read_bytes() for shard in shards))
    return path


@pytest.mark.parametrize("workers", [2, 5])
def test_the_file_is_decompressed_once(
    workers: int, joined: Path, tokenizer: Path, expected: Sums, small_blocks: None, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    opened = tmp_path / "opened"
    opened.mkdir()
    whole = TextBlocks.__init__

    def counted(self: TextBlocks, path: Path, key: str) -> None:
        (opened / str(os.getpid())).touch()
        whole(self, path, key)

    monkeypatch.setattr(TextBlocks, "__init__", counted)
    preprocess([joined], tokenizer, tmp_path / "x", workers=workers)
    assert sums(tmp_path / "x") == expected
    assert len(list(opened.iterdir())) == 1


@pytest.mark.parametrize("stripe", [0, 2])
def test_a_stripe_that_is_killed(
    stripe: int, joined: Path, tokenizer: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add = PartWriter.add

    def killed(self: PartWriter, block: Block) -> None:
        if self._part.stripe == stripe and len(self._blocks) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        add(self, block)

    monkeypatch.setattr(PartWriter, "add", killed)
    with pytest.raises(InputError, match="a worker was killed"):
        preprocess([joined], tokenizer, tmp_path / "x", workers=3)
    assert not (tmp_path / "x.parts").exists()


def test_a_bug_in_a_stripe_has_its_traceback(
    joined: Path, tokenizer: Path, small_blocks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug of ours")

    monkeypatch.setattr(PartWriter, "add", broken)
    with pytest.raises(RuntimeError, match=r"(?s)in the process of stripe [01].*a bug of ours"):
        preprocess([joined], tokenizer, tmp_path / "x", workers=2)


def test_a_damaged_end_leaves_nothing(joined: Path, tokenizer: Path, small_blocks: None, tmp_path: Path) -> None:
    joined.write_bytes(joined.read_bytes()[:-5])
    with pytest.raises(InputError, match="truncated or damaged gzip file"):
        preprocess([joined], tokenizer, tmp_path / "x", workers=4)
    assert not (tmp_path / "x.parts").exists()


def test_a_bad_line_in_any_stripe(joined: Path, tokenizer: Path, small_blocks: None, tmp_path: Path) -> None:
    lines = gzip.decompress(joined.read_bytes()).splitlines(keepends=True)
    for number in (0, 77, len(lines)):
        joined.write_bytes(gzip.compress(b"".join([*lines[:number], b"no\n", *lines[number:]])))
        with pytest.raises(InputError, match=f"joined.json.gz:{number + 1}: not a JSON object"):
            preprocess([joined], tokenizer, tmp_path / "x", workers=3)
