"""Merged datasets: the bytes of tokenising all at once, and what does not belong together."""

import json
import shutil
from pathlib import Path

import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_piece import Reading
from data_prep.sample_order.blend_file import write_blend
from data_prep.sample_order.token_windows import open_token_windows
from data_prep.token_files.indexed_dataset import bin_path, idx_path
from data_prep.token_files.merge_datasets import Merged, merge_datasets
from data_prep.tokenizing.tokenizer import train_tokenizer
from foundation.errors import InputError
from foundation.outputs.manifest import manifest_path, read_manifest
from tests.data_prep.shards import sums
from tests.support import command, write_dataset


def shards_of(corpus: Path) -> list[Path]:
    return sorted((corpus / "en").iterdir())[:2]


@pytest.fixture(scope="module")
def made(corpus: Path, corpus_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset for each of two shards; beside them, ``all`` of them in one."""
    shards, folder = shards_of(corpus), tmp_path_factory.mktemp("parts")
    for number, shard in enumerate(shards):
        preprocess([shard], corpus_tokenizer, folder / str(number), workers=1)
    preprocess(shards, corpus_tokenizer, folder / "all", workers=1)
    return folder


@pytest.fixture
def parts(made: Path, tmp_path: Path) -> list[Path]:
    """Copies of the datasets, which a test may damage."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return [tmp_path / str(number) for number in range(2)]


def test_the_bytes_are_those_of_all_texts_together(parts: list[Path], tmp_path: Path) -> None:
    words = ["merge", "--input", *parts, "--output-prefix", tmp_path / "merged", "--json"]
    done = command("data_prep", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == 120
    assert sums(tmp_path / "merged") == sums(tmp_path / "all")
    assert json.loads(command("data_prep", *words).stdout) is None
    manifest, before = read_manifest(tmp_path / "merged"), read_manifest(parts[0])
    assert manifest is not None
    assert before is not None
    assert [record.md5 for record in manifest.outputs] == list(sums(tmp_path / "merged"))
    for name, value in {"dtype": "uint16", "vocab_size": 500, "append_eod": False}.items():
        assert manifest.options[name] == value
    assert manifest.options["tokenizer"] == before.options["tokenizer"]
    assert sorted(path.name for path in tmp_path.glob("merged*")) == [
        "merged.bin", "merged.idx", "merged.manifest.json",
    ]  # fmt: skip


def test_without_manifests_and_twice_the_same(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [3, 4])
    assert merge_datasets([tmp_path / "x", tmp_path / "x"], tmp_path / "y") == Merged(4, 14)
    assert bin_path(tmp_path / "y").read_bytes() == bin_path(tmp_path / "x").read_bytes() * 2
    write_dataset(tmp_path / "none", [])
    with pytest.raises(InputError, match="no document in 1 datasets; nothing was written"):
        merge_datasets([tmp_path / "none"], tmp_path / "z")
    assert not list(tmp_path.glob("z*"))


def test_datasets_of_different_tokenizers_are_neither_merged_nor_blended(
    parts: list[Path], corpus: Path, corpus_tokenizer: Path, tmp_path: Path
) -> None:
    """Fault: a second merge, and blends, mixed tokenizers, vocabularies and end-of-document settings."""
    shards = shards_of(corpus)
    for name, vocab_size, inputs in (("other", 400, shards[:1]), ("twin", 500, shards[1:])):
        train_tokenizer(inputs, tmp_path / f"{name}.model", vocab_size=vocab_size)
        preprocess(shards[:1], tmp_path / f"{name}.model", tmp_path / name, workers=1)
    preprocess(shards[:1], corpus_tokenizer, tmp_path / "eod", workers=1, reading=Reading(append_eod=True))
    write_dataset(tmp_path / "wide", [3], vocab_size=70_000)
    merge_datasets(parts[:2], tmp_path / "merged")
    for name, complaint in (
        ("wide", r"dtype \(int32 and uint16\)"),
        ("other", r"vocabulary \(400 and 500\)"),
        ("twin", "different tokenizer do not"),
        ("eod", r"end-of-document setting \(True and False\)"),
    ):
        for first in (parts[0], tmp_path / "merged"):
            both = [first, tmp_path / name]
            with pytest.raises(InputError, match=complaint):
                merge_datasets(both, tmp_path / "new")
            with pytest.raises(InputError, match=complaint):
                write_blend(tmp_path / "new.blend.json", both, [1, 1], [1, 1])
            data_path = ["1", str(both[0]), "1", str(both[1])]
            if name == "wide":  # without a manifest, read sample by sample
                open_token_windows(data_path, sequence_length=2, num_samples=4, seed=1)
                continue
            with pytest.raises(InputError, match=complaint):
                open_token_windows(data_path, sequence_length=8, num_samples=4, seed=1)
        assert not list(tmp_path.glob("new*"))


def test_damage_is_not_merged(parts: list[Path], tmp_path: Path) -> None:
    whole = bin_path(parts[1]).read_bytes()
    bin_path(parts[1]).write_bytes(bytes(len(whole)))
    with pytest.raises(InputError, match="its MD5 is"):
        merge_datasets(parts, tmp_path / "merged")
    bin_path(parts[1]).write_bytes(whole)
    manifest_path(parts[1]).unlink()
    index = bytearray(idx_path(parts[1]).read_bytes())
    index[34 + 4] += 1
    idx_path(parts[1]).write_bytes(index)
    with pytest.raises(InputError, match=r"1.idx: document 2 has .* from byte|1.bin: .* describes"):
        merge_datasets(parts, tmp_path / "merged")
    assert not list(tmp_path.glob("merged*"))
