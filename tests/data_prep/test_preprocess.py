"""Tokenising many files with many workers on many machines: the same bytes, whatever happens on the way."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from data_prep.corpus import c4
from data_prep.token_files import indexed_dataset
from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, idx_path
from data_prep.tokenizing.preprocess import _stripes, preprocess
from data_prep.tokenizing.shard_parts import Method, Part, SourceFile, make_part, read_record, source_of
from data_prep.tokenizing.tokenizer import train_tokenizer
from stage.digest import md5_file
from stage.errors import InputError
from tests.support import REPOSITORY, assert_refused, command

WORDS = (REPOSITORY / "README.md").read_text().split()


def write_shard(path: Path, documents: int, seed: int) -> Path:
    draw = random.Random(seed)
    lines = [json.dumps({"text": " ".join(draw.choices(WORDS, k=draw.randrange(1, 200)))}) for _ in range(documents)]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("shards")
    return [write_shard(folder / f"{number}.json.gz", 150, number) for number in range(5)]


@pytest.fixture(scope="module")
def tokenizer(shards: list[Path]) -> Path:
    path = shards[0].parent / "tokenizer.model"
    train_tokenizer(shards[:1], path, vocab_size=500)
    return path


@pytest.fixture(scope="module")
def expected(shards: list[Path], tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    prefix = tmp_path_factory.mktemp("expected") / "x"
    preprocess(shards, tokenizer, prefix, workers=1)
    return sums(prefix)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks in small files; worker processes are forked from this one."""
    monkeypatch.setattr(c4, "BLOCK_BYTES", 3000)


def sums(prefix: Path) -> tuple[str, str]:
    return md5_file(bin_path(prefix)), md5_file(idx_path(prefix))


def part_of(folder: Path, shard: Path, number: int, tokenizer: Path) -> Part:
    return Part(folder, number, source_of(shard), Method(md5_file(tokenizer), "uint16", "stop"), 0, 1)


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 16])
def test_any_number_of_workers(
    workers: int, shards: list[Path], tokenizer: Path, expected: tuple[str, str], small_blocks: None, tmp_path: Path
) -> None:
    preprocess(shards, tokenizer, tmp_path / "x", workers=workers)
    assert sums(tmp_path / "x") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.bin", "x.idx", "x.manifest.json"]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_one_file_is_shared_by_workers(
    workers: int, shards: list[Path], tokenizer: Path, expected: tuple[str, str], small_blocks: None, tmp_path: Path
) -> None:
    joined = tmp_path / "joined.json.gz"  # of several gzip members
    joined.write_bytes(b"".join(shard.read_bytes() for shard in shards))
    preprocess([joined], tokenizer, tmp_path / "x", workers=workers)
    assert sums(tmp_path / "x") == expected


def test_stripes_keep_workers_busy() -> None:
    assert _stripes(files=128, workers=1) == 1
    assert _stripes(files=128, workers=64) == 1
    assert _stripes(files=1, workers=2) == 2
    assert _stripes(files=3, workers=2) == 2
    assert _stripes(files=4, workers=2) == 1
    assert _stripes(files=1, workers=100) == 8
    assert _stripes(files=0, workers=4) == 1


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_shards_on_several_machines_and_the_join(
    count: int, shards: list[Path], tokenizer: Path, expected: tuple[str, str], tmp_path: Path
) -> None:
    arguments = ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", "--workers", 1]
    for index in reversed(range(count)):
        done = command("data_prep", "preprocess", *arguments, "--shard", f"{index}/{count}")
        assert done.returncode == 0, done.stderr
        assert not bin_path(tmp_path / "x").exists()
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "x.parts").glob("*.bin")}
    assert len(made) == len(shards)
    done = command("data_prep", "preprocess", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["documents"], result["skipped_lines"]) == (750, 0)
    assert sums(tmp_path / "x") == expected


def test_a_shard_that_is_missing_is_made_by_the_join(
    shards: list[Path], tokenizer: Path, expected: tuple[str, str], tmp_path: Path
) -> None:
    arguments = ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
    assert command("data_prep", "preprocess", *arguments, "--shard", "1/2").returncode == 0
    assert command("data_prep", "preprocess", *arguments).returncode == 0
    assert sums(tmp_path / "x") == expected


@pytest.mark.parametrize("shard", ["2/2", "-1/2", "1", "a/b", "0/0"])
def test_bad_shards_are_refused(shard: str, shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    arguments = ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", f"--shard={shard}"]
    assert_refused(command("data_prep", "preprocess", *arguments), "expected K/N")


def test_only_what_is_not_done_is_done_again(
    shards: list[Path],
    tokenizer: Path,
    expected: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    broken = [*shards[:3], tmp_path / "broken.json.gz", shards[4]]
    broken[3].write_bytes(shards[3].read_bytes()[:-30])
    with pytest.raises(InputError, match=r"broken.json.gz: truncated or damaged gzip"):
        preprocess(broken, tokenizer, tmp_path / "x", workers=1)
    assert len(list((tmp_path / "x.parts").glob("*.bin"))) == 3
    broken[3].write_bytes(shards[3].read_bytes())
    made_again: list[int] = []
    monkeypatch.setattr(
        "data_prep.tokenizing.tokenize_workers.make_part",
        lambda part, *others: made_again.append(part.number) or make_part(part, *others),  # type: ignore[func-returns-value]
    )
    preprocess(broken, tokenizer, tmp_path / "x", workers=1)
    assert made_again == [3, 4]
    assert sums(tmp_path / "x") == expected


def test_parts_of_something_else_are_not_used(
    shards: list[Path], tokenizer: Path, expected: tuple[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "x.parts"
    changed = tmp_path / "0.json.gz"
    write_shard(changed, 150, seed=99)
    preprocess_shard_zero = [changed, *shards[1:]]
    arguments = ["--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", "--shard", "0/5", "--workers", 1]
    assert command("data_prep", "preprocess", "--input", *preprocess_shard_zero, *arguments).returncode == 0
    part = part_of(folder, changed, 0, tokenizer)
    assert read_record(part) is not None
    assert read_record(part_of(folder, shards[0], 0, tokenizer)) is None  # another file at the same place
    changed.write_bytes(shards[0].read_bytes())
    assert read_record(part_of(folder, changed, 0, tokenizer)) is None  # the same file, changed
    part.path("bin").write_bytes(part.path("bin").read_bytes()[:-2])
    assert read_record(part) is None  # a truncated part
    preprocess(preprocess_shard_zero, tokenizer, tmp_path / "x", workers=2)
    assert sums(tmp_path / "x") == expected


@pytest.mark.parametrize("delay_s", [0.45, 0.6, 0.8])
def test_killed_and_run_again(
    delay_s: float, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path_factory.getbasetemp() / "larger"
    if not folder.exists():
        folder.mkdir()
        for number in range(6):
            write_shard(folder / f"{number}.json.gz", 1500, number)
    inputs = sorted(folder.iterdir())
    arguments = ["--input", *inputs, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", "--workers", 2]
    words = [sys.executable, "-m", "data_prep", "preprocess", *map(str, arguments)]
    process = subprocess.Popen(words, cwd=REPOSITORY, start_new_session=True)
    time.sleep(delay_s)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = command("data_prep", "preprocess", *arguments)
    assert done.returncode == 0, done.stderr
    preprocess(inputs, tokenizer, tmp_path / "again", workers=1)
    assert sums(tmp_path / "x") == sums(tmp_path / "again")
    assert not list(tmp_path.glob("x.bin.*"))


def test_killed_before_the_manifest(
    shards: list[Path], tokenizer: Path, expected: tuple[str, str], tmp_path: Path
) -> None:
    arguments = ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
    assert command("data_prep", "preprocess", *arguments, "--shard", "0/1").returncode == 0
    for path in (bin_path, idx_path):
        path(tmp_path / "x").write_bytes(b"published, but not all there is")
    assert command("data_prep", "preprocess", *arguments).returncode == 0
    assert sums(tmp_path / "x") == expected


def test_bad_lines_can_be_skipped(
    shards: list[Path], tokenizer: Path, expected: tuple[str, str], small_blocks: None, tmp_path: Path
) -> None:
    bad = [b"{oops", b'["text"]', b'{"text": 1}', b'{"text": "\\ud800"}', b'{"text": "\xff"}', b""]
    inputs = []
    for number, shard in enumerate(shards):
        lines = gzip.decompress(shard.read_bytes()).splitlines()
        for position, line in enumerate(bad):
            lines.insert(20 * position, line)
        inputs.append(tmp_path / f"{number}.json.gz")
        inputs[-1].write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    result = preprocess(inputs, tokenizer, tmp_path / "x", workers=3, on_bad_line="skip")
    assert result is not None
    assert (result.documents, result.skipped_lines) == (750, 30)
    assert sums(tmp_path / "x") == expected
    skipped = (tmp_path / "x.skipped.txt").read_text().splitlines()
    assert [line.split(": ")[0] for line in skipped[:7]] == [
        *(f"{inputs[0]}:{number}" for number in (1, 21, 41, 61, 81, 101)),
        f"{inputs[1]}:1",
    ]
    assert "lone surrogate" in skipped[3]


def test_disk_full_leaves_what_can_be_continued(
    shards: list[Path], tokenizer: Path, expected: tuple[str, str], tmp_path: Path
) -> None:
    limited = f"ulimit -f 40; exec {sys.executable} -m data_prep preprocess " + " ".join(
        str(word) for word in ["--input", *shards, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
    )
    done = subprocess.run(["bash", "-c", limited], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not bin_path(tmp_path / "x").exists()
    preprocess(shards, tokenizer, tmp_path / "x", workers=2)
    assert sums(tmp_path / "x") == expected


def test_a_worker_that_is_killed(
    shards: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "data_prep.tokenizing.tokenize_workers.make_part", lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    )
    with pytest.raises(InputError, match="a worker was killed"):
        preprocess(shards, tokenizer, tmp_path / "x", workers=2)


def test_a_file_that_changes_while_it_is_read(
    shards: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    growing = tmp_path / "growing.json.gz"
    growing.write_bytes(shards[0].read_bytes())

    def source_then_growth(path: Path) -> SourceFile:
        source = source_of(path)
        with path.open("ab") as file:
            file.write(shards[1].read_bytes())
        return source

    monkeypatch.setattr("data_prep.tokenizing.preprocess.source_of", source_then_growth)
    with pytest.raises(InputError, match=r"growing.json.gz: changed while it was read"):
        preprocess([growing], tokenizer, tmp_path / "x", workers=1)


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
    assert [dataset.tokens(i, 0, int(dataset.sizes[i])).tolist() for i in range(150)] == model.encode(texts)


def test_lines_of_any_ending(tokenizer: Path, tmp_path: Path) -> None:
    for name, text in (("a", '{"text": "x"}\n{"text": "y"}\n'), ("b", '{"text": "x"}\r\n{"text": "y"}')):
        (tmp_path / f"{name}.json").write_text(text, newline="")
        preprocess([tmp_path / f"{name}.json"], tokenizer, tmp_path / name, workers=1)
    assert sums(tmp_path / "a") == sums(tmp_path / "b")


def test_index_is_written_in_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(indexed_dataset, "BLOCK_DOCUMENTS", 7)
    sizes = np.random.default_rng(0).integers(1, 50, size=100).astype(np.int32)
    with indexed_dataset.IndexedDatasetWriter(tmp_path / "x", np.dtype("<u2")) as writer:
        writer.append(np.arange(sizes.sum(), dtype="<u2"), sizes)
    dataset = IndexedDataset(tmp_path / "x")
    np.testing.assert_array_equal(dataset.sizes, sizes)
    np.testing.assert_array_equal(dataset.pointers, 2 * (np.cumsum(sizes) - sizes))
    np.testing.assert_array_equal(dataset.document_ends, np.arange(101))
