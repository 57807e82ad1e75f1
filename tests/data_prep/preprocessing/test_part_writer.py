"""Blocks to token ids: end-of-document tokens, and what a part says of itself."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from data_prep.preprocessing.preprocess import Reading, preprocess
from data_prep.token_files.indexed_dataset import IndexedDataset
from stage.errors import InputError
from stage.manifest import read_manifest
from tests.data_prep.english_text import WORDS

TEXTS = ["tree house", "", "a", " \n ", "one two three", *WORDS[:50]]


@pytest.mark.parametrize("workers", [1, 2])
def test_every_document_ends_with_the_token_that_was_asked_for(
    workers: int, tokenizer: Path, small_blocks: None, tmp_path: Path
) -> None:
    """Documents without tokens stay out, as in the reference's preprocessing."""
    source = tmp_path / "x.jsonl"
    source.write_text("".join(json.dumps({"body": text}) + "\n" for text in TEXTS))
    preprocess([source], tokenizer, tmp_path / "x", workers=workers, reading=Reading(text_key="body", append_eod=True))
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    wanted = [[*model.encode(text), model.eos_id()] for text in TEXTS if model.encode(text)]
    dataset = IndexedDataset(tmp_path / "x")
    assert [dataset.tokens(i, 0, int(size)).tolist() for i, size in enumerate(dataset.sizes)] == wanted
    assert dataset.dtype == np.uint16
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    assert (manifest.options["append_eod"], manifest.options["text_key"]) == (True, "body")


def test_a_tokenizer_without_such_a_token(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"text": "tree"}\n')
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(WORDS), model_prefix=str(tmp_path / "m"), vocab_size=300, hard_vocab_limit=False,
        eos_id=-1, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(InputError, match="has no end-of-sequence token; leave out --append-eod"):
        preprocess(
            [tmp_path / "x.json"], tmp_path / "m.model", tmp_path / "x", workers=1, reading=Reading(append_eod=True)
        )
    assert not (tmp_path / "x.parts").exists()


def test_both_files_are_on_the_disk_before_any_has_its_name(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And their names, before the record, which makes the part whole, is said to be there."""
    seen: list[str] = []
    sync, replace = os.fsync, os.replace
    folder = tmp_path / "x.parts"

    def fsync(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path == folder:
            seen.append("sync folder")
        elif path.parent == folder and path.suffix == ".partial":
            seen.append(f"sync {path.name.split('.')[2]}")
        sync(handle)

    def replaced(old: Path, new: Path) -> None:
        if Path(new).parent == folder:
            seen.append(f"name {Path(new).suffix.removeprefix('.')}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replaced)
    (tmp_path / "x.json").write_text('{"text": "tree"}\n')
    preprocess([tmp_path / "x.json"], tokenizer, tmp_path / "x", workers=1)
    made = seen[: seen.index("name json") + 2]
    assert sorted(made[:2]) == ["sync bin", "sync sizes"]
    assert made[2:] == ["name bin", "name sizes", "sync json", "name json", "sync folder"]
