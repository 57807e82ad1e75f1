"""The commands: what they print, and the options that they refuse."""

import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, idx_path
from stage.digest import md5_file
from stage.manifest import read_manifest
from tests.support import REPOSITORY, assert_refused, command


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
        (lambda good: {**good, "--workers": "0"}, "--workers 0: expected 1 to 4096"),
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


def test_results_as_json(corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> None:
    shards = sorted((corpus / "en").iterdir())
    sizes = ["--size.shards", 1, "--size.documents-per-shard", 2, "--size.validation-documents", 1]
    for arguments, first, second in (
        (
            ["preprocess", "--input", *shards[:1], "--tokenizer", corpus_tokenizer, "--output-prefix", tmp_path / "x"],
            {"documents": 60},
            None,
        ),
        (
            ["train-tokenizer", "--input", shards[0], "--output", tmp_path / "m", "--vocab-size", 400],
            {"made": True, "vocab_size": 400},
            {"made": False},
        ),
        (
            ["validation-subset", "--input", corpus / "c4-validation.json", "--output", tmp_path / "v", "--count", 3],
            {"documents": 3, "of_documents": 10},
            None,
        ),
        (["synthetic-corpus", "--output", tmp_path / "c", "--seed", 1, *sizes], {"shards": 1}, {"made": False}),
    ):
        for expected in (first, second):
            done = command("data_prep", *arguments, "--json")
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            assert found is None if expected is None else expected.items() <= found.items(), found


def test_standard_input(corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> None:
    """Packed or not, by one process or several; a second time it is other text, so nothing is taken from the first."""
    shard = sorted((corpus / "en").iterdir())[0]
    lines = gzip.decompress(shard.read_bytes())
    preprocessed([shard], corpus_tokenizer, tmp_path / "x")
    for number, content in enumerate((lines, shard.read_bytes(), zstandard.compress(lines))):
        for workers in (1, 2):
            prefix = tmp_path / f"{number}-{workers}"
            words = ["--tokenizer", corpus_tokenizer, "--output-prefix", prefix, "--workers", workers]
            done = subprocess.run(
                [sys.executable, "-m", "data_prep", "preprocess", "--input", "-", *map(str, words)],
                input=content, capture_output=True, cwd=REPOSITORY, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr.decode()
            assert bin_path(prefix).read_bytes() == bin_path(tmp_path / "x").read_bytes()
            manifest = read_manifest(prefix)
            assert manifest is not None
            assert (manifest.inputs[0].name, manifest.inputs[0].bytes) == ("-", len(content))
            assert manifest.inputs[0].md5 == hashlib.md5(content).hexdigest()


def test_standard_input_stands_alone(corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> None:
    words = ["--tokenizer", corpus_tokenizer, "--output-prefix", tmp_path / "x"]
    for more in ([corpus / "c4-validation.json"], ["-"]):
        assert_refused(command("data_prep", "preprocess", "--input", "-", *more, *words), "--input -: standard input")
    assert_refused(command("data_prep", "preprocess", "--input", "-", "--shard", "0/2", *words), "of one task")
    assert not list(tmp_path.iterdir())
