"""Tokenising many files: SentencePiece's own ids, and the same bytes by any number of workers and tasks."""

import gzip
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from data_prep.corpus import c4
from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_part import PartMaker, Reading, join_parts
from data_prep.token_files.indexed_dataset import IndexedDataset
from data_prep.tokenizing.tokenizer import train_tokenizer
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import Recipe, manifest_path, read_manifest
from foundation.outputs.output_parts import NewPart
from foundation.outputs.resumable_output import resumable_output
from foundation.outputs.shards import Shard
from tests.data_prep.english_text import WORDS
from tests.data_prep.shards import DOCUMENTS, Sums, sums, write_shard
from tests.foundation.network.faulty_server import FaultyServer
from tests.support import forked_command


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five files of English; only read."""
    folder = tmp_path_factory.mktemp("shards")
    return [write_shard(folder / f"{number}.json.gz", DOCUMENTS, seed=number) for number in range(5)]


@pytest.fixture(scope="module")
def tokenizer(shards: list[Path]) -> Path:
    path = shards[0].parent / "tokenizer.model"
    train_tokenizer(shards[:1], path, vocab_size=500)
    return path


@pytest.fixture(scope="module")
def made(shards: list[Path], tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of all ``shards``, made by one process."""
    prefix = tmp_path_factory.mktemp("expected") / "x"
    preprocess(shards, tokenizer, prefix, workers=1)
    return prefix


@pytest.fixture(scope="module")
def expected(made: Path) -> Sums:
    return sums(made)


def documents(prefix: Path) -> list[list[int]]:
    dataset = IndexedDataset(prefix)
    return [dataset.tokens(number, 0, int(size)).tolist() for number, size in enumerate(dataset.sizes[:])]


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_tokens_are_sentencepieces_own_and_the_manifest_says_what_was_read(
    shards: list[Path], tokenizer: Path, made: Path
) -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    assert documents(made) == [model.encode(text) for shard in shards for text in texts_of(shard)]
    assert IndexedDataset(made).dtype == np.uint16
    manifest, identity = read_manifest(made), f"md5:{md5_file(tokenizer)}"
    assert manifest is not None
    assert [source.name for source in manifest.inputs] == [*map(str, shards), str(tokenizer)]
    assert manifest.facts["input_md5"] == [md5_file(shard) for shard in shards]
    assert manifest.inputs[-1].identity == identity
    assert manifest.options == {
        "vocab_size": 500, "dtype": "uint16", "tokenizer": identity,
        "on_bad_line": "stop", "text_key": "text", "append_eod": False,
    }  # fmt: skip
    assert [record.md5 for record in manifest.outputs] == list(sums(made))
    assert set(manifest.versions) == {"sentencepiece"}


def test_any_number_of_workers(
    shards: list[Path], tokenizer: Path, expected: Sums, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(c4, "BLOCK_BYTES", 3000)  # many blocks in small files
    result = preprocess(shards, tokenizer, tmp_path / "x", workers=7)
    assert result is not None and result.documents == DOCUMENTS * len(shards)
    assert sums(tmp_path / "x") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.bin", "x.idx", "x.manifest.json"]


def test_the_bytes_are_those_of_the_concatenation(
    shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    """The reference's preparation joins the shards first."""
    (tmp_path / "joined.json.gz").write_bytes(b"".join(shard.read_bytes() for shard in shards))
    preprocess([tmp_path / "joined.json.gz"], tokenizer, tmp_path / "x", workers=1)
    assert sums(tmp_path / "x") == expected


@pytest.mark.slow
def test_from_addresses_as_from_disk(shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path) -> None:
    """Whatever the server does; no secret is told."""
    faults = {3: "truncated", 4: "unavailable"}
    with FaultyServer(shards[0].parent, fault=lambda key, number: faults.get(number)) as server:
        base = server.url.replace("http://", "http://name:SECRET@")
        addresses = [f"{base}/ckpt/{path.name}?sig=SECRET" for path in shards[1:]]
        words = ["--input", shards[0], *addresses, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
        done = forked_command("data_prep", "preprocess", *words, "--workers", 3, "--json")
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == DOCUMENTS * len(shards)
    assert sums(tmp_path / "x") == expected
    assert "SECRET" not in done.stderr + manifest_path(tmp_path / "x").read_text()


def test_what_tasks_have_read_is_joined_and_compared_with_a_list(
    shards: list[Path], tokenizer: Path, expected: Sums, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A list that is given to the join alone counts, and one that is given when all is made."""
    good, bad = tmp_path / "good.md5", tmp_path / "bad.md5"
    ends = [f"{'1' * 32}  {shards[0].name}\n", *(f"{md5_file(path)}  {path.name}\n" for path in shards[1:])]
    longer = f"{md5_file(shards[0])}  {shards[0].parent.name}/{shards[0].name}\n"  # the longest end is the one
    good.write_text("".join(ends) + longer)
    bad.write_text(good.read_text().replace(md5_file(shards[1]), "0" * 32))
    wrong = rf"{shards[1].name}: MD5 .*, --md5-list has 0{{32}}; nothing was published"
    for index in range(2):
        result = preprocess(shards, tokenizer, tmp_path / "x", workers=2, shard=Shard(index, 2))
        assert result is not None and result.documents == DOCUMENTS * len(shards[index::2])
        assert list(tmp_path.glob("x*")) == [tmp_path / "x.partial"]
    monkeypatch.setattr(PartMaker, "make", None)  # all is made
    with pytest.raises(InputError, match=wrong):
        preprocess(shards, tokenizer, tmp_path / "x", workers=1, md5_list=bad)
    assert not manifest_path(tmp_path / "x").exists()
    result = preprocess(shards, tokenizer, tmp_path / "x", workers=1, md5_list=good)
    assert result is not None and result.documents == DOCUMENTS * len(shards)
    assert sums(tmp_path / "x") == expected
    assert preprocess(shards, tokenizer, tmp_path / "x", workers=1, md5_list=good) is None
    with pytest.raises(InputError, match=wrong):
        preprocess(shards, tokenizer, tmp_path / "x", workers=1, md5_list=bad)
    good.write_text(longer)
    with pytest.raises(InputError, match=r"has no sum of .*1.json.gz; leave the option out, or the file"):
        preprocess(shards, tokenizer, tmp_path / "y", workers=1, md5_list=good)


def test_a_damaged_file_costs_only_itself(shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path) -> None:
    """The others are not tokenised again once it is mended; it is no longer the file that it was."""
    inputs = [*shards[:3], tmp_path / "broken.json.gz", shards[4]]
    inputs[3].write_bytes(shards[3].read_bytes()[:-30])
    with pytest.raises(InputError, match=r"broken.json.gz: truncated or damaged gzip"):
        preprocess(inputs, tokenizer, tmp_path / "x", workers=2)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "x.partial" / "pieces").iterdir()}
    assert made
    assert not list((tmp_path / "x.partial" / "writing").iterdir())
    inputs[3].write_bytes(shards[3].read_bytes())
    preprocess(inputs, tokenizer, tmp_path / "x", workers=1, shard=Shard(0, 1))
    assert {path: path.stat().st_mtime_ns for path in made} == made
    preprocess(inputs, tokenizer, tmp_path / "x", workers=1)
    assert sums(tmp_path / "x") == expected


def test_a_worker_that_is_killed(
    shards: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(PartMaker, "make", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(InputError, match="a worker was killed"):
        preprocess(shards, tokenizer, tmp_path / "x", workers=2)


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


def test_documents_without_tokens_are_left_out(tokenizer: Path, tmp_path: Path) -> None:
    """As in the reference's preprocessing; no token stands for them, even where one stands behind each document."""
    texts = ["tree house", "", "a", " \n ", "one two three", *WORDS[:50]]
    (tmp_path / "x.json").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    reading = Reading(text_key="body", append_eod=True)
    preprocess([tmp_path / "x.json"], tokenizer, tmp_path / "x", workers=1, reading=reading)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    assert documents(tmp_path / "x") == [[*model.encode(text), 1] for text in texts if model.encode(text)]
    (tmp_path / "empty.json").write_text('{"text": ""}\n{"text": " \\n "}\n')
    with pytest.raises(InputError, match="no document with a token in 1 file;"):
        preprocess([tmp_path / "empty.json"], tokenizer, tmp_path / "y", workers=1)
    assert not (tmp_path / "y.bin").exists()


@pytest.mark.parametrize("spoilt", [b"\0" * 12, b"\0" * 13, b""], ids=["zeros", "longer", "empty"])
def test_a_spoilt_part_is_removed_to_be_made_again(spoilt: bytes, tmp_path: Path) -> None:
    with resumable_output(tmp_path / "x", Recipe("preprocess", {}, [])) as job:
        assert job is not None
        path = job.new_path()
        path.write_bytes(np.array([1, 2, 3, 4], "<u2").tobytes() + np.array([4], "<i4").tobytes())
        job.add([NewPart("0", path, md5_file(path), {"source_md5": "0", "documents": 1, "tokens": 4})])
        job.path("0").write_bytes(spoilt)
        with pytest.raises(InputError, match="not the bytes that were written"):
            join_parts(job, ["0"], np.dtype("<u2"))
        assert not job.path("0").exists()
        assert list((job.folder / "writing").iterdir()) == []
