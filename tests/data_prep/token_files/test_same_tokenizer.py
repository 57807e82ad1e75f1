"""Blends of datasets that do not belong together."""

import re
from pathlib import Path
from typing import Any

import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_part import Reading
from data_prep.sample_order.token_windows import open_token_windows
from data_prep.token_files.same_tokenizer import unknown_tokenizers
from data_prep.tokenizing.tokenizer import train_tokenizer
from foundation.errors import InputError
from foundation.outputs.manifest import manifest_path
from tests.support import write_dataset


def test_datasets_of_different_tokenizers_are_not_blended(corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> None:
    shards = sorted((corpus / "en").iterdir())[:2]
    for name, vocab_size, inputs in (("other", 400, shards[:1]), ("twin", 500, shards[1:])):
        train_tokenizer(inputs, tmp_path / f"{name}.model", vocab_size=vocab_size)
        preprocess(shards[:1], tmp_path / f"{name}.model", tmp_path / name, workers=1)
    for number, shard in enumerate(shards):
        preprocess([shard], corpus_tokenizer, tmp_path / str(number), workers=1)
    preprocess(shards[:1], corpus_tokenizer, tmp_path / "eod", workers=1, reading=Reading(append_eod=True))
    write_dataset(tmp_path / "wide", [3], vocab_size=70_000)
    write_dataset(tmp_path / "foreign", [30], vocab_size=50_000)
    write_dataset(tmp_path / "fitting", [30], vocab_size=500)
    arguments: dict[str, Any] = {"sequence_length": 8, "num_samples": 4, "seed": 1}

    def blended(*names: str) -> None:
        words = [word for name in names for word in ("1", str(tmp_path / name))]
        for shuffle_documents in (False, True):
            open_token_windows(words, **arguments, shuffle_documents=shuffle_documents)

    for name, complaint in (
        ("other", r"vocabulary \(400 and 500\)"),
        ("twin", "different tokenizer do not"),
        ("eod", r"end-of-document setting \(True and False\)"),
        ("wide", "wide: ids of int32, not uint16; mixed with .*0, whose vocabulary has 500 tokens"),
        ("foreign", r"foreign\.bin: holds token [0-9]+, but the vocabulary has 500: .*; mixed with .*0, whose"),
    ):
        with pytest.raises(InputError, match=complaint):
            blended("0", "1", name)
    with pytest.raises(InputError, match="foreign"):
        blended("foreign", "0")
    blended("0", "1", "fitting")
    (line,) = unknown_tokenizers([tmp_path / name for name in ("fitting", "0", "1", "fitting")])
    assert re.fullmatch(
        r"\S*fitting: no manifest names .*; it is mixed with \S*0, whose vocabulary has 500 tokens", line
    )
    manifest_path(tmp_path / "0").unlink()
    blended("foreign", "wide", "0")  # nothing is known of any
    assert not unknown_tokenizers([tmp_path / "foreign", tmp_path / "0"])
