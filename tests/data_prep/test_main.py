"""The commands: what they print, and the options that they refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest

from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, idx_path
from stage.digest import md5_file
from stage.manifest import read_manifest
from tests.support import assert_refused, command


def preprocessed(inputs: list[Path], tokenizer: Path, prefix: Path, *more: object) -> "object":
    return command(
        "data_prep", "preprocess", "--input", *inputs, "--tokenizer", tokenizer, "--output-prefix", prefix, *more
    )


def test_finished_work_is_kept_and_never_overwritten(corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> None:
    shards = sorted((corpus / "en").iterdir())
    prefix = tmp_path / "x"
    preprocessed(shards[:1], corpus_tokenizer, prefix)
    manifest = read_manifest(prefix)
    assert manifest is not None
    assert manifest.options == {"vocab_size": 500, "dtype": "uint16", "on_bad_line": "stop"}
    assert [record.md5 for record in manifest.inputs] == [md5_file(shards[0]), md5_file(corpus_tokenizer)]
    assert [record.md5 for record in manifest.outputs] == [md5_file(bin_path(prefix)), md5_file(idx_path(prefix))]
    before = bin_path(prefix).stat().st_mtime_ns
    done = command(
        "data_prep", "preprocess", "--input", shards[0], "--tokenizer", corpus_tokenizer, "--output-prefix", prefix
    )
    assert (done.returncode, "already made" in done.stdout) == (0, True)
    assert bin_path(prefix).stat().st_mtime_ns == before
    arguments = ["--input", *shards[:2], "--tokenizer", corpus_tokenizer, "--output-prefix", prefix]
    assert_refused(command("data_prep", "preprocess", *arguments), "x.bin exists", "--force")
    assert command("data_prep", "preprocess", *arguments, "--force").returncode == 0
    assert len(IndexedDataset(prefix)) == 120


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda good: {**good, "--input": "none.json"}, "none.json: no such file"),
        (lambda good: {**good, "--tokenizer": "none.model"}, "none.model: no such file"),
        (lambda good: {**good, "--tokenizer": good["--input"]}, "not a SentencePiece model"),
        (lambda good: {**good, "--workers": "0"}, "--workers 0: expected at least 1"),
        (lambda good: {**good, "--output-prefix": "/proc/none/x"}, "/proc/none"),
        (lambda good: {**good, "--typo": "1"}, "--typo"),
    ],
)
def test_bad_options_are_refused(
    change: Callable[[dict[str, str]], dict[str, str]],
    complaint: str,
    corpus: Path,
    corpus_tokenizer: Path,
    tmp_path: Path,
) -> None:
    good = {
        "--input": str(corpus / "c4-validation.json"),
        "--tokenizer": str(corpus_tokenizer),
        "--output-prefix": str(tmp_path / "x"),
    }
    words = [word for pair in change(good).items() for word in pair]
    assert_refused(command("data_prep", "preprocess", *words), complaint)
