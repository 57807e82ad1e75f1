"""Parts of a dataset: which are used again, and files that change."""

from pathlib import Path

import pytest

from data_prep.corpus.input_files import SourceFile, source_of
from data_prep.preprocessing.preprocess import Reading, preprocess
from data_prep.preprocessing.shard_parts import Method, OnBadLine, Part, read_record
from data_prep.preprocessing.tokenize_workers import make_file
from stage.digest import md5_file
from stage.errors import InputError
from stage.task_shard import TaskShard
from tests.data_prep.shards import Sums, sums, write_shard
from tests.support import command


def part_of(folder: Path, shard: Path, number: int, tokenizer: Path) -> Part:
    method = Method(md5_file(tokenizer), "uint16", "stop", "text", None, None)
    return Part(folder, number, shard, source_of(shard), method, 0, 1)


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

    monkeypatch.setattr("data_prep.preprocessing.preprocess.source_of", source_then_growth)
    with pytest.raises(InputError, match=r"growing.json.gz: changed while it was read"):
        preprocess([growing], tokenizer, tmp_path / "x", workers=1)


def make_parts(shards: list[Path], tokenizer: Path, prefix: Path, on_bad_line: OnBadLine = "stop") -> Path:
    preprocess(shards, tokenizer, prefix, workers=1, reading=Reading(on_bad_line), shard=TaskShard(0, 1))
    return prefix.with_name(prefix.name + ".parts")


@pytest.mark.parametrize("suffix", ["bin", "sizes"])
@pytest.mark.parametrize("damage", ["zeros", "one bit", "exchanged"])
def test_parts_that_do_not_hold_what_was_written(
    damage: str, suffix: str, shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    """As after a crash of the machine: the right size, another content."""
    folder = make_parts(shards, tokenizer, tmp_path / "x")
    path = sorted(folder.glob(f"*.{suffix}"))[2]
    content = bytearray(path.read_bytes())
    if damage == "zeros":
        content[:] = bytes(len(content))
    elif damage == "one bit":
        content[len(content) // 2] ^= 4
    else:
        content[:4], content[4:8] = content[4:8], content[:4]
    path.write_bytes(content)
    with pytest.raises(InputError, match="does not hold what was written"):
        preprocess(shards, tokenizer, tmp_path / "x", workers=1)
    assert not (tmp_path / "x.bin").exists()
    preprocess(shards, tokenizer, tmp_path / "x", workers=2)
    assert sums(tmp_path / "x") == expected


def test_parts_without_bad_lines_serve_either_way(
    shards: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"text": "tree"}\nno\n')
    inputs = [*shards[:2], bad]
    with pytest.raises(InputError, match=r"bad.json:2: not a JSON object"):
        preprocess(inputs, tokenizer, tmp_path / "x", workers=1)
    made: list[int] = []
    monkeypatch.setattr(
        "data_prep.preprocessing.tokenize_workers.make_file",
        lambda parts, *others: made.append(parts[0].number) or make_file(parts, *others),  # type: ignore[func-returns-value]
    )
    result = preprocess(inputs, tokenizer, tmp_path / "x", workers=1, reading=Reading("skip"))
    assert result is not None
    assert (made, result.skipped_lines) == ([2], 1)
    make_parts(inputs, tokenizer, tmp_path / "y", "skip")
    with pytest.raises(InputError, match=r"bad.json:2: not a JSON object"):  # though its part is there
        preprocess(inputs, tokenizer, tmp_path / "y", workers=1)


def test_the_same_file_elsewhere_is_the_same(
    shards: list[Path], tokenizer: Path, expected: Sums, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_parts(shards, tokenizer, tmp_path / "x")
    moved = [tmp_path / f"moved-{shard.name}" for shard in shards]
    for shard, copy in zip(shards, moved, strict=True):
        copy.write_bytes(shard.read_bytes())
    write_shard(moved[3], 150, seed=3)
    monkeypatch.setattr("data_prep.preprocessing.tokenize_workers.make_file", _none_to_make)
    preprocess(moved, tokenizer, tmp_path / "x", workers=1)
    assert sums(tmp_path / "x") == expected
    assert preprocess(shards, tokenizer, tmp_path / "x", workers=1) is None


def _none_to_make(*_: object) -> None:
    raise AssertionError("everything was there")


def test_files_of_the_users_are_left_in_the_folder(shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    folder = make_parts(shards[:2], tokenizer, tmp_path / "x")
    mine = {folder / name for name in ("notes.txt", "0.json", "00000.json", "joint.json", "locksmith", "lock.txt")}
    for path in mine:
        path.write_text("mine")
    preprocess(shards[:2], tokenizer, tmp_path / "x", workers=1)
    assert set(folder.iterdir()) == mine
