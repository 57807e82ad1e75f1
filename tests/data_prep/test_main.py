"""The commands: what they print, and the options that they refuse."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from data_prep.__main__ import COMMANDS
from tests.support import assert_refused, command


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda good: {**good, "--input": "none.json"}, "none.json: no such file"),
        (lambda good: {**good, "--tokenizer": "none.model"}, "none.model: no such file"),
        (lambda good: {**good, "--tokenizer": good["--input"]}, "not a tokenizer.json"),
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
            run = command("data_prep", *arguments, "--json")
            assert run.returncode == 0, run.stderr
            result = json.loads(run.stdout)
            assert result is None if expected is None else expected.items() <= result.items(), result


def test_every_command_has_help_with_an_example() -> None:
    for name in COMMANDS:
        run = command("data_prep", name, "--help")
        assert run.returncode == 0
        assert f"Example: python -m data_prep {name} " in run.stdout
