"""Parts of a dataset: which are used again, and files that change."""

from pathlib import Path

import pytest

from data_prep.tokenizing.preprocess import preprocess
from data_prep.tokenizing.shard_parts import Method, Part, SourceFile, read_record, source_of
from stage.digest import md5_file
from stage.errors import InputError
from tests.data_prep.shards import Sums, sums, write_shard
from tests.support import command


def part_of(folder: Path, shard: Path, number: int, tokenizer: Path) -> Part:
    return Part(folder, number, source_of(shard), Method(md5_file(tokenizer), "uint16", "stop"), 0, 1)


def test_parts_of_something_else_are_not_used(
    shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    folder = tmp_path / "x.parts"
    changed = tmp_path / "0.json.gz"
    write_shard(changed, 150, seed=99)
    preprocess_shard_zero = [changed, *shards[1:]]
    arguments = ["--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", "--shard", "0/5", "--workers", 1]
    assert command("data_prep", "preprocess", "--input", *preprocess_shard_zero, *arguments).returncode == 0
    part = part_of(folder, changed, 0, tokenizer)
    assert read_record(part) is not None
    assert read_record(part_of(folder, shards[0], 0, tokenizer)) is None  # another file at the same place
    changed.write_bytes(shards[0].read_bytes())
    assert read_record(part_of(folder, changed, 0, tokenizer)) is None  # the same file, changed
    part.path("bin").write_bytes(part.path("bin").read_bytes()[:-2])
    assert read_record(part) is None  # a truncated part
    preprocess(preprocess_shard_zero, tokenizer, tmp_path / "x", workers=2)
    assert sums(tmp_path / "x") == expected


def test_a_file_that_changes_while_it_is_read(
    shards: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    growing = tmp_path / "growing.json.gz"
    growing.write_bytes(shards[0].read_bytes())

    def source_then_growth(path: Path) -> SourceFile:
        source = source_of(path)
        with path.open("ab") as file:
            file.write(shards[1].read_bytes())
        return source

    monkeypatch.setattr("data_prep.tokenizing.preprocess.source_of", source_then_growth)
    with pytest.raises(InputError, match=r"growing.json.gz: changed while it was read"):
        preprocess([growing], tokenizer, tmp_path / "x", workers=1)
