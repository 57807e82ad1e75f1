"""Merged datasets: the bytes of tokenising all at once, and what does not belong together."""

import json
import shutil
from pathlib import Path

import pytest

from data_prep.preprocessing.preprocess import Reading, preprocess
from data_prep.token_files.indexed_dataset import bin_path, idx_path
from data_prep.token_files.merge_datasets import Merged, merge_datasets
from data_prep.tokenizing.tokenizer import train_tokenizer
from stage.errors import InputError
from stage.manifest import manifest_path, read_manifest
from tests.data_prep.shards import sums
from tests.support import command, write_dataset


@pytest.fixture
def parts(corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> list[Path]:
    shards = sorted((corpus / "en").iterdir())
    for number, shard in enumerate(shards):
        preprocess([shard], corpus_tokenizer, tmp_path / str(number), workers=1)
    preprocess(shards, corpus_tokenizer, tmp_path / "all", workers=1)
    return [tmp_path / str(number) for number in range(len(shards))]


def test_the_bytes_are_those_of_all_texts_together(parts: list[Path], tmp_path: Path) -> None:
    words = ["merge", "--input", *parts, "--output-prefix", tmp_path / "merged", "--json"]
    done = command("data_prep", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == 180
    assert sums(tmp_path / "merged") == sums(tmp_path / "all")
    assert json.loads(command("data_prep", *words).stdout) is None
    manifest = read_manifest(tmp_path / "merged")
    assert manifest is not None
    assert manifest.options == {"dtype": "uint16", "vocab_size": 500}
    assert [record.md5 for record in manifest.outputs] == list(sums(tmp_path / "merged"))


def test_without_manifests_and_twice_the_same(parts: list[Path], tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [3, 4])
    assert merge_datasets([tmp_path / "x", tmp_path / "x"], tmp_path / "y") == Merged(4, 14)
    assert bin_path(tmp_path / "y").read_bytes() == bin_path(tmp_path / "x").read_bytes() * 2


def test_what_does_not_belong_together(parts: list[Path], corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> None:
    shards = sorted((corpus / "en").iterdir())
    write_dataset(tmp_path / "wide", [3], vocab_size=70_000)
    train_tokenizer(shards[:1], tmp_path / "other.model", vocab_size=400)
    preprocess(shards[:1], tmp_path / "other.model", tmp_path / "other", workers=1)
    train_tokenizer(shards[1:], tmp_path / "twin.model", vocab_size=500)
    preprocess(shards[:1], tmp_path / "twin.model", tmp_path / "twin", workers=1)
    preprocess(shards[:1], corpus_tokenizer, tmp_path / "eod", workers=1, reading=Reading(append_eod=True))
    for name, complaint in (
        ("wide", "int32 tokens, but .* has uint16"),
        ("other", "different vocab_size"),
        ("twin", "different tokenizers"),
        ("eod", "different append_eod"),
        ("none", "no such file"),
    ):
        with pytest.raises(InputError, match=complaint):
            merge_datasets([parts[0], tmp_path / name], tmp_path / "merged")
        assert not bin_path(tmp_path / "merged").exists()


def test_damage_is_not_merged(parts: list[Path], tmp_path: Path) -> None:
    bin_path(parts[1]).write_bytes(bytes(bin_path(parts[1]).stat().st_size))
    with pytest.raises(InputError, match="its MD5 is not that"):
        merge_datasets(parts, tmp_path / "merged")
    manifest_path(parts[2]).unlink()
    index = bytearray(idx_path(parts[2]).read_bytes())
    index[34 + 4] += 1
    idx_path(parts[2]).write_bytes(index)
    with pytest.raises(InputError, match=r"2.idx: document 2 has .* expected byte|2.bin: .* describes"):
        merge_datasets([parts[0], parts[2]], tmp_path / "merged")
    assert not bin_path(tmp_path / "merged").exists()


def test_only_what_was_merged_is_replaced(parts: list[Path], tmp_path: Path) -> None:
    for output, complaint in ((parts[0], "holds the input"), (tmp_path / "all", "preprocess made it")):
        with pytest.raises(InputError, match=complaint):
            merge_datasets(parts, output, force=True)
    merge_datasets(parts[:1], tmp_path / "merged")
    with pytest.raises(InputError, match="--force"):
        merge_datasets(parts, tmp_path / "merged")
    merge_datasets(parts, tmp_path / "merged", force=True)
    assert sums(tmp_path / "merged") == sums(tmp_path / "all")
    shutil.move(bin_path(parts[0]), tmp_path / "gone")
    with pytest.raises(InputError):
        merge_datasets(parts, tmp_path / "merged")
