"""The piece of one input file: its bytes, and what the journal keeps of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from data_prep.corpus.input_files import described
from data_prep.preprocessing.shared_meter import SharedMeter
from data_prep.preprocessing.token_piece import PieceFacts, PieceMaker, Reading, facts_of
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.errors import InputError
from stage.outputs.digest import md5_file
from stage.outputs.manifest import Recipe
from stage.outputs.resumable_output import resumable_output

TEXTS = ["one two", "", "three"]


def made(folder: Path, tokenizer: Path, lines: list[str], reading: Reading) -> tuple[Any, Any, PieceFacts]:
    source = folder / "a.json"
    source.write_text("".join(f"{line}\n" for line in lines))
    with resumable_output(folder / "out", Recipe("preprocess", {}, [])) as job:
        assert job is not None
        maker = PieceMaker(job, FastTokenizer(Tokenizer(tokenizer), np.dtype("<u2")), reading)
        maker.make("0", described([source])[0], SharedMeter())
        facts, content = facts_of(job.done["0"]), job.path("0").read_bytes()
        assert facts.source_md5 == md5_file(source)
        cut = 2 * facts.tokens
        return np.frombuffer(content[:cut], "<u2"), np.frombuffer(content[cut:], "<i4"), facts


def test_ids_then_lengths_and_no_empty_document(tokenizer: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"text": text}) for text in TEXTS]
    ids, lengths, _ = made(tmp_path, tokenizer, lines, Reading())
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    expected = [model.encode(text) for text in TEXTS if text]
    assert (ids.tolist(), lengths.tolist()) == (
        [one for ids in expected for one in ids],
        [len(ids) for ids in expected],
    )


def test_bad_lines_are_noted_or_stop_it(tokenizer: Path, tmp_path: Path) -> None:
    lines = [json.dumps({"text": "one"}), "{", json.dumps({"text": 3})]
    *_, facts = made(tmp_path, tokenizer, lines, Reading(on_bad_line="skip"))
    assert [number for number, _ in facts.skipped] == [2, 3]
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match=r"a\.json:2: "):
        made(tmp_path / "other", tokenizer, lines, Reading())
