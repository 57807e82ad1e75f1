"""Tokenising many files: SentencePiece's own ids, and the same bytes by any number of workers and tasks."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from data_prep.corpus import c4
from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_piece import Reading
from data_prep.token_files.indexed_dataset import IndexedDataset
from stage.errors import InputError
from stage.outputs.digest import md5_file
from stage.outputs.manifest import manifest_path, read_manifest
from stage.outputs.shards import Shard
from tests.data_prep.english_text import WORDS
from tests.data_prep.shards import DOCUMENTS, Sums, sums


def documents(prefix: Path) -> list[list[int]]:
    dataset = IndexedDataset(prefix)
    return [dataset.tokens(number, 0, int(size)).tolist() for number, size in enumerate(dataset.sizes[:])]


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_tokens_are_sentencepieces_own(shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    preprocess(shards[:2], tokenizer, tmp_path / "x", workers=2)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    assert documents(tmp_path / "x") == [model.encode(text) for shard in shards[:2] for text in texts_of(shard)]
    assert IndexedDataset(tmp_path / "x").dtype == np.uint16


@pytest.mark.parametrize("workers", [3, 7])
def test_any_number_of_workers(
    workers: int,
    shards: list[Path],
    tokenizer: Path,
    expected: Sums,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(c4, "BLOCK_BYTES", 3000)  # many blocks in small files
    result = preprocess(shards, tokenizer, tmp_path / "x", workers=workers)
    assert result is not None and result.documents == DOCUMENTS * len(shards)
    assert sums(tmp_path / "x") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.bin", "x.idx", "x.manifest.json"]


def test_the_bytes_are_those_of_the_concatenation(
    shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    """The reference's preparation joins the shards first."""
    joined = tmp_path / "joined.json.gz"
    joined.write_bytes(b"".join(shard.read_bytes() for shard in shards))
    (tmp_path / "plain.json").write_bytes(gzip.decompress(joined.read_bytes()))
    for name in ("joined.json.gz", "plain.json"):
        preprocess([tmp_path / name], tokenizer, tmp_path / "x", workers=1, force=True)
        assert sums(tmp_path / "x") == expected


def test_the_manifest_says_what_was_read(shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    preprocess(shards[:2], tokenizer, tmp_path / "x", workers=1)
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    assert [source.name for source in manifest.inputs] == [*map(str, shards[:2]), str(tokenizer)]
    assert manifest.facts["input_md5"] == [md5_file(shard) for shard in shards[:2]]
    identity = f"md5:{md5_file(tokenizer)}"
    assert manifest.inputs[-1].identity == identity
    assert manifest.options == {
        "vocab_size": 500, "dtype": "uint16", "tokenizer": identity,
        "on_bad_line": "stop", "text_key": "text", "append_eod": False,
    }  # fmt: skip
    assert [record.md5 for record in manifest.outputs] == list(sums(tmp_path / "x"))
    assert set(manifest.versions) == {"sentencepiece"}


def test_shards_and_the_join(
    shards: list[Path], tokenizer: Path, expected: Sums, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count = 7  # of five files
    for index in reversed(range(count)):
        result = preprocess(shards, tokenizer, tmp_path / "x", workers=1 + (index == 0), shard=Shard(index, count))
        assert result is not None
        assert result.documents == DOCUMENTS * len(shards[index::count])
        assert [path.name for path in tmp_path.iterdir()] == ["x.partial"]
    monkeypatch.setattr("data_prep.preprocessing.token_piece.PieceMaker.make", None)  # all is made
    result = preprocess(shards, tokenizer, tmp_path / "x", workers=1)
    assert result is not None and result.documents == DOCUMENTS * len(shards)
    assert sums(tmp_path / "x") == expected
    assert preprocess(shards, tokenizer, tmp_path / "x", workers=1) is None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_damaged_file_costs_only_itself(
    workers: int, shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    """The others are not tokenised again once it is mended; it is no longer the file that it was."""
    inputs = [*shards[:3], tmp_path / "broken.json.gz", shards[4]]
    inputs[3].write_bytes(shards[3].read_bytes()[:-30])
    with pytest.raises(InputError, match=r"broken.json.gz: truncated or damaged gzip"):
        preprocess(inputs, tokenizer, tmp_path / "x", workers=workers)
    pieces = tmp_path / "x.partial" / "pieces"
    made = {path: path.stat().st_mtime_ns for path in pieces.iterdir()}
    assert made
    assert not list((tmp_path / "x.partial" / "writing").iterdir())
    inputs[3].write_bytes(shards[3].read_bytes())
    (tmp_path / "list").write_text(f"{'0' * 32}  broken.json.gz\n" + "".join(f"{md5_file(s)}  {s}\n" for s in shards))
    with pytest.raises(InputError, match=r"broken.json.gz: MD5 .*, --md5-list has 0{32}"):
        preprocess(inputs, tokenizer, tmp_path / "x", workers=1, md5_list=tmp_path / "list")
    assert {path: path.stat().st_mtime_ns for path in pieces.iterdir() if path in made} == made
    preprocess(inputs, tokenizer, tmp_path / "x", workers=1)
    assert sums(tmp_path / "x") == expected


def test_what_shards_have_read_is_compared_with_the_list(shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    """A list that is given to the join alone counts, and one that is given when all is made."""
    good, bad = tmp_path / "good.md5", tmp_path / "bad.md5"
    good.write_text("".join(f"{md5_file(path)}  en/x/{path.name}\n{md5_file(path)}  {path.name}\n" for path in shards))
    bad.write_text(good.read_text().replace(md5_file(shards[1]), "0" * 32))
    wrong = rf"{shards[1].name}: MD5 .*, --md5-list has 0{{32}}; nothing was published"
    preprocess(shards, tokenizer, tmp_path / "x", workers=1, shard=Shard(1, 2))
    with pytest.raises(InputError, match=wrong):
        preprocess(shards, tokenizer, tmp_path / "x", workers=1, md5_list=bad)
    assert not manifest_path(tmp_path / "x").exists()
    preprocess(shards, tokenizer, tmp_path / "x", workers=2, md5_list=good)
    assert preprocess(shards, tokenizer, tmp_path / "x", workers=1, md5_list=good) is None
    with pytest.raises(InputError, match=wrong):
        preprocess(shards, tokenizer, tmp_path / "x", workers=1, md5_list=bad)


def test_a_sum_is_found_by_the_longest_end_that_is_listed(shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    source = tmp_path / "en" / "a.gz"
    source.parent.mkdir()
    shutil.copy(shards[0], source)
    (tmp_path / "list").write_text(f"{'1' * 32}  a.gz\n{md5_file(source)}  en/a.gz\n")
    preprocess([source], tokenizer, tmp_path / "x", workers=1, md5_list=tmp_path / "list")
    with pytest.raises(InputError, match=r"has no sum of .*0.json.gz; leave the option out, or the file"):
        preprocess(shards[:1], tokenizer, tmp_path / "y", workers=1, md5_list=tmp_path / "list")


def test_bad_lines_are_skipped_and_listed(tokenizer: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('no\n{"text": "tree"}\n{"text": 1}\n')
    with pytest.raises(InputError, match=r"bad.json:1: not a JSON object"):
        preprocess([bad], tokenizer, tmp_path / "x", workers=1)
    result = preprocess([bad, bad], tokenizer, tmp_path / "x", workers=2, reading=Reading("skip"))
    assert result is not None and (result.documents, result.skipped_lines) == (2, 4)
    listed = (tmp_path / "x.skipped.txt").read_text().splitlines()
    assert [line.partition(": ")[0] for line in listed] == [f"{bad}:1", f"{bad}:3"] * 2
    bad.write_text('{"text": "tree"}\n')
    preprocess([bad], tokenizer, tmp_path / "x", workers=1, reading=Reading("skip"), force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.json", "x.bin", "x.idx", "x.manifest.json"]


@pytest.mark.parametrize("append_eod", [False, True])
def test_documents_without_tokens_are_left_out(append_eod: bool, tokenizer: Path, tmp_path: Path) -> None:
    """As in the reference's preprocessing, and whether or not a token stands behind each document."""
    texts = ["tree house", "", "a", " \n ", "one two three", *WORDS[:50]]
    (tmp_path / "x.json").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    reading = Reading(text_key="body", append_eod=append_eod)
    preprocess([tmp_path / "x.json"], tokenizer, tmp_path / "x", workers=1, reading=reading)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    end = [model.eos_id()] if append_eod else []
    assert documents(tmp_path / "x") == [[*model.encode(text), *end] for text in texts if model.encode(text)]


def test_a_tokenizer_without_an_end_token(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"text": "tree"}\n')
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(WORDS), model_prefix=str(tmp_path / "m"), vocab_size=300, hard_vocab_limit=False,
        eos_id=-1, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(InputError, match="has no end-of-sequence token; leave out --append-eod"):
        preprocess(
            [tmp_path / "x.json"], tmp_path / "m.model", tmp_path / "x", workers=1, reading=Reading(append_eod=True)
        )
    assert not (tmp_path / "x.partial").exists()


@pytest.mark.parametrize("content", ["", '{"text": ""}\n{"text": " \\n "}\n'])
def test_a_dataset_without_documents_is_not_published(content: str, tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match="no document with a token in 1 files"):
        preprocess([tmp_path / "x.json"], tokenizer, tmp_path / "x", workers=1)
    assert {path.name for path in tmp_path.iterdir()} <= {"x.json", "x.partial"}
