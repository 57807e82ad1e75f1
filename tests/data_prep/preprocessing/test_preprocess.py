"""Tokenising many files with many workers on many machines: the same bytes, whatever happens on the way."""

import gzip
import json
import multiprocessing
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from data_prep.preprocessing.preprocess import Reading, preprocess
from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, idx_path
from stage.errors import InputError
from stage.manifest import manifest_path
from stage.task_shard import TaskShard
from tests.data_prep.english_text import WORDS
from tests.data_prep.shards import DOCUMENTS, Sums, sums, write_shard
from tests.forked import run_forked, run_module
from tests.support import REPOSITORY, assert_refused, command

FORK = multiprocessing.get_context("fork")


@pytest.mark.parametrize("workers", [1, 2, 3, 7, pytest.param(16, marks=pytest.mark.slow)])
def test_any_number_of_workers(
    workers: int, shards: list[Path], tokenizer: Path, expected: Sums, small_blocks: None, tmp_path: Path
) -> None:
    preprocess(shards, tokenizer, tmp_path / "x", workers=workers)
    assert sums(tmp_path / "x") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.bin", "x.idx", "x.manifest.json"]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_file_is_shared_by_workers(
    workers: int, shards: list[Path], tokenizer: Path, expected: Sums, small_blocks: None, tmp_path: Path
) -> None:
    joined = tmp_path / "joined.json.gz"  # of several gzip members
    joined.write_bytes(b"".join(shard.read_bytes() for shard in shards))
    preprocess([joined], tokenizer, tmp_path / "x", workers=workers)
    assert sums(tmp_path / "x") == expected


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_shards_on_several_machines_and_the_join(
    count: int, shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    for index in reversed(range(count)):
        shard = TaskShard(index, count)
        result = preprocess(shards, tokenizer, tmp_path / "x", workers=1, shard=shard)
        assert result is not None
        assert result.documents == DOCUMENTS * len(shards[index::count])
        assert not bin_path(tmp_path / "x").exists()
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "x.parts").glob("*.bin")}
    assert len(made) == len(shards)
    arguments = ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", "--workers", 1]
    done = command("data_prep", "preprocess", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    result_of_all = json.loads(done.stdout)
    assert (result_of_all["documents"], result_of_all["skipped_lines"]) == (750, 0)
    assert sums(tmp_path / "x") == expected


def test_a_shard_that_is_missing_is_made_by_the_join(
    shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    arguments = ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
    assert command("data_prep", "preprocess", *arguments, "--shard", "1/2").returncode == 0
    assert command("data_prep", "preprocess", *arguments).returncode == 0
    assert sums(tmp_path / "x") == expected


@pytest.mark.parametrize("shard", ["3/2", "-1/2", "1", "a/b", "0/0"])
def test_bad_shards_are_refused(shard: str, shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    arguments = ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", f"--shard={shard}"]
    assert_refused(command("data_prep", "preprocess", *arguments), "expected K/N")


def test_killed_before_the_manifest(
    shards: list[Path], tokenizer: Path, expected: Sums, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With and without an older dataset in its place; what is not ours is left alone even then."""
    prefix = tmp_path / "x"
    for force in (False, True):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("data_prep.preprocessing.join_parts.write_manifest", _interrupt)
            preprocess(shards[: 2 + force], tokenizer, prefix, workers=1, force=force)
        assert not manifest_path(prefix).exists()
        assert bin_path(prefix).exists()
        preprocess(shards, tokenizer, prefix, workers=1)
        assert sums(prefix) == expected
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("data_prep.preprocessing.join_parts.write_manifest", _interrupt)
        preprocess(shards[:2], tokenizer, prefix, workers=1, force=True)
    bin_path(prefix).write_bytes(b"mine")
    with pytest.raises(InputError, match="its manifest is missing"):
        preprocess(shards, tokenizer, prefix, workers=1)
    with pytest.raises(InputError, match="no manifest says what it is"):
        preprocess(shards, tokenizer, prefix, workers=1, force=True)
    assert bin_path(prefix).read_bytes() == b"mine"


def test_a_forced_task_after_its_join_has_nothing_to_do(shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    assert preprocess(shards, tokenizer, tmp_path / "x", workers=1) is not None
    before = sorted(tmp_path.iterdir())
    assert preprocess(shards, tokenizer, tmp_path / "x", workers=1, shard=TaskShard(1, 2), force=True) is None
    assert sorted(tmp_path.iterdir()) == before
    assert preprocess(shards, tokenizer, tmp_path / "x", workers=1, force=True) is not None


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_bad_lines_can_be_skipped(
    shards: list[Path], tokenizer: Path, expected: Sums, small_blocks: None, tmp_path: Path
) -> None:
    bad = [b"{oops", b'["text"]', b'{"text": 1}', b'{"text": "\\ud800"}', b'{"text": "\xff"}', b""]
    inputs = []
    for number, shard in enumerate(shards):
        lines = gzip.decompress(shard.read_bytes()).splitlines()
        for position, line in enumerate(bad):
            lines.insert(20 * position, line)
        inputs.append(tmp_path / f"{number}.json.gz")
        inputs[-1].write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    result = preprocess(inputs, tokenizer, tmp_path / "x", workers=3, reading=Reading("skip"))
    assert result is not None
    assert (result.documents, result.skipped_lines) == (750, 30)
    assert sums(tmp_path / "x") == expected
    skipped = (tmp_path / "x.skipped.txt").read_text().splitlines()
    assert [line.split(": ")[0] for line in skipped[:7]] == [
        *(f"{inputs[0]}:{number}" for number in (1, 21, 41, 61, 81, 101)),
        f"{inputs[1]}:1",
    ]
    assert "lone surrogate" in skipped[3]


def _with_small_files_only(arguments: list[str]) -> None:
    """As on a disk with 40 KiB left."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (40 << 10, 40 << 10))
    run_module(arguments)


def test_disk_full_leaves_what_can_be_continued(
    shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    arguments = ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
    words = ["data_prep", "preprocess", *map(str, arguments)]
    done = run_forked(_with_small_files_only, words, folder=REPOSITORY, timeout=60)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not bin_path(tmp_path / "x").exists()
    preprocess(shards, tokenizer, tmp_path / "x", workers=2)
    assert sums(tmp_path / "x") == expected


def test_a_slow_model_is_said_to_be_slow(shards: list[Path], tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(WORDS), model_prefix=str(tmp_path / "m"), vocab_size=300, hard_vocab_limit=False,
        minloglevel=2,
    )  # fmt: skip
    arguments = ["--input", shards[0], "--tokenizer", tmp_path / "m.model", "--output-prefix", tmp_path / "x"]
    done = command("data_prep", "preprocess", *arguments)
    assert done.returncode == 0
    assert "it is not a BPE model; its texts are encoded whole, which is slow" in done.stderr
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    dataset = IndexedDataset(tmp_path / "x")
    texts = [json.loads(line)["text"] for line in gzip.decompress(shards[0].read_bytes()).splitlines()]
    assert [dataset.tokens(i, 0, int(dataset.sizes[i])).tolist() for i in range(DOCUMENTS)] == model.encode(texts)


def test_tokens_are_sentencepieces_own(corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> None:
    shards = sorted((corpus / "en").iterdir())
    preprocess(shards, corpus_tokenizer, tmp_path / "x", workers=2)
    model = sentencepiece.SentencePieceProcessor(model_file=str(corpus_tokenizer))
    expected = [
        model.encode(json.loads(line)["text"])
        for shard in shards
        for line in gzip.decompress(shard.read_bytes()).splitlines()
    ]
    dataset = IndexedDataset(tmp_path / "x")
    assert dataset.dtype == np.uint16
    assert [dataset.tokens(i, 0, len(ids)).tolist() for i, ids in enumerate(expected)] == expected


def test_output_does_not_depend_on_workers_or_on_how_files_are_packed(
    corpus: Path, corpus_tokenizer: Path, tmp_path: Path
) -> None:
    shards = sorted((corpus / "en").iterdir())
    joined, plain = tmp_path / "joined.json.gz", tmp_path / "plain.json"
    joined.write_bytes(b"".join(shard.read_bytes() for shard in shards))  # as the reference's preparation does
    plain.write_bytes(gzip.decompress(joined.read_bytes()))
    preprocess(shards, corpus_tokenizer, tmp_path / "a", workers=1)
    preprocess([joined], corpus_tokenizer, tmp_path / "b", workers=3)
    preprocess([plain], corpus_tokenizer, tmp_path / "c", workers=2)
    for path in (bin_path, idx_path):
        assert len({path(tmp_path / name).read_bytes() for name in "abc"}) == 1


def test_documents_without_tokens_are_left_out(corpus_tokenizer: Path, tmp_path: Path) -> None:
    source = tmp_path / "x.json"
    source.write_text('{"text": "tree"}\n{"text": ""}\n{"text": " \\n "}\n{"text": "house"}\n')
    preprocess([source], corpus_tokenizer, tmp_path / "x", workers=1)
    assert len(IndexedDataset(tmp_path / "x")) == 2


@pytest.fixture(scope="module")
def larger(tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Sums]:
    """Files that take a few tenths of a second, and what is made of them."""
    folder = tmp_path_factory.mktemp("larger")
    inputs = [write_shard(folder / f"{number}.json.gz", 1500, seed=number) for number in range(6)]
    preprocess(inputs, tokenizer, folder / "expected", workers=1)
    return inputs, sums(folder / "expected")


def _killed_at(sign: str, count: int, inputs: list[Path], tokenizer: Path, prefix: Path) -> None:
    """In a session of its own, which ends with all its workers as soon as there are ``count`` files that match."""
    os.setsid()
    replace = os.replace

    def look() -> None:
        if len(list(prefix.parent.glob(f"x.parts/{sign}"))) >= count:
            os.killpg(0, signal.SIGKILL)

    def replace_and_look(source: Path, target: Path) -> None:
        look()
        replace(source, target)
        look()

    setattr(os, "replace", replace_and_look)  # noqa: B010
    preprocess(inputs, tokenizer, prefix, workers=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sign", "count"),
    [("*.bin.*.partial", 1), ("*.json", 1), ("*.json", 2)],
    ids=["in the first part", "after a part", "after two parts"],
)
def test_killed_and_run_again(
    sign: str, count: int, larger: tuple[list[Path], Sums], tokenizer: Path, tmp_path: Path
) -> None:
    inputs, expected = larger
    process = FORK.Process(target=_killed_at, args=(sign, count, inputs, tokenizer, tmp_path / "x"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert list(tmp_path.glob(f"x.parts/{sign}"))
    assert not manifest_path(tmp_path / "x").exists()
    arguments = ["--input", *inputs, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", "--workers", 2]
    done = command("data_prep", "preprocess", *arguments)
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path / "x") == expected
    assert not list(tmp_path.glob("x.bin.*"))
