"""From C4's files to tokens: corpus, tokenizer, preprocess, samples, as commands."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from data_prep.corpus.synthetic_corpus import stored_gzip
from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, idx_path
from stage.digest import md5_file
from stage.manifest import read_manifest
from tests.support import assert_refused, command, write_dataset


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "c4"
    sizes = ["--size.shards", 3, "--size.documents-per-shard", 60, "--size.validation-documents", 10]
    assert command("data_prep", "synthetic-corpus", "--output", folder, "--seed", 5, *sizes).returncode == 0
    return folder


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> Path:
    model = corpus.parent / "tokenizer.model"
    shards = sorted((corpus / "en").iterdir())
    done = command("data_prep", "train-tokenizer", "--input", *shards, "--output", model, "--vocab-size", 500)
    assert done.returncode == 0, done.stderr
    return model


def preprocess(inputs: list[Path], tokenizer: Path, prefix: Path, *more: object) -> "object":
    return command(
        "data_prep", "preprocess", "--input", *inputs, "--tokenizer", tokenizer, "--output-prefix", prefix, *more
    )


def test_corpus_bytes_depend_on_the_seed_alone(corpus: Path, tmp_path: Path) -> None:
    sizes = ["--size.shards", 3, "--size.documents-per-shard", 60, "--size.validation-documents", 10]
    for seed, same in ((5, True), (6, False)):
        again = tmp_path / str(seed)
        assert command("data_prep", "synthetic-corpus", "--output", again, "--seed", seed, *sizes).returncode == 0
        files = sorted(path.relative_to(corpus) for path in corpus.rglob("*.json*"))
        assert len(files) == 4
        assert all(((again / file).read_bytes() == (corpus / file).read_bytes()) is same for file in files)


def test_corpus_is_in_c4s_format(corpus: Path) -> None:
    with gzip.open(corpus / "en" / "c4-train.00001-of-00003.json.gz") as file:
        documents = [json.loads(line) for line in file]
    assert len(documents) == 60
    assert {"text", "timestamp", "url"} == set(documents[0])
    assert all("\n" in document["text"] or "." in document["text"] for document in documents)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 200_000])
def test_stored_gzip_is_gzip(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert gzip.decompress(stored_gzip(data[:size])) == data[:size]


def test_tokenizer_has_the_references_options(tokenizer: Path) -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    assert (model.pad_id(), model.eos_id(), model.bos_id(), model.unk_id()) == (0, 1, -1, 2)
    assert model.get_piece_size() == 500
    assert model.id_to_piece(3) == "<0x00>"  # byte fallback
    assert len(model.encode("1234", out_type=str)) == 5  # split digits, after the dummy prefix


def test_tokenizer_bytes_do_not_depend_on_paths(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(corpus)
    shards = sorted((tmp_path / "elsewhere" / "en").iterdir())
    model = tmp_path / "other name.model"
    assert (
        command("data_prep", "train-tokenizer", "--input", *shards, "--output", model, "--vocab-size", 500).returncode
        == 0
    )
    assert md5_file(model) == md5_file(tokenizer)


def test_tokens_are_sentencepieces_own(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    shards = sorted((corpus / "en").iterdir())
    preprocess(shards, tokenizer, tmp_path / "x")
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    expected = [
        model.encode(json.loads(line)["text"])
        for shard in shards
        for line in gzip.decompress(shard.read_bytes()).splitlines()
    ]
    dataset = IndexedDataset(tmp_path / "x")
    assert dataset.dtype == np.uint16
    assert [dataset.tokens(i, 0, len(ids)).tolist() for i, ids in enumerate(expected)] == expected


def test_output_does_not_depend_on_workers_or_on_how_files_are_packed(
    corpus: Path, tokenizer: Path, tmp_path: Path
) -> None:
    shards = sorted((corpus / "en").iterdir())
    joined, plain = tmp_path / "joined.json.gz", tmp_path / "plain.json"
    joined.write_bytes(b"".join(shard.read_bytes() for shard in shards))  # as the reference's preparation does
    plain.write_bytes(gzip.decompress(joined.read_bytes()))
    preprocess(shards, tokenizer, tmp_path / "a", "--workers", 1)
    preprocess([joined], tokenizer, tmp_path / "b", "--workers", 3)
    preprocess([plain], tokenizer, tmp_path / "c")
    for path in (bin_path, idx_path):
        assert len({path(tmp_path / name).read_bytes() for name in "abc"}) == 1


def test_documents_without_tokens_are_left_out(tokenizer: Path, tmp_path: Path) -> None:
    source = tmp_path / "x.json"
    source.write_text('{"text": "tree"}\n{"text": ""}\n{"text": " \\n "}\n{"text": "house"}\n')
    preprocess([source], tokenizer, tmp_path / "x")
    assert len(IndexedDataset(tmp_path / "x")) == 2


def test_finished_work_is_kept_and_never_overwritten(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    shards = sorted((corpus / "en").iterdir())
    prefix = tmp_path / "x"
    preprocess(shards[:1], tokenizer, prefix)
    manifest = read_manifest(prefix)
    assert manifest is not None
    assert manifest.options == {"vocab_size": 500, "dtype": "uint16", "on_bad_line": "stop"}
    assert [record.md5 for record in manifest.inputs] == [md5_file(shards[0]), md5_file(tokenizer)]
    assert [record.md5 for record in manifest.outputs] == [md5_file(bin_path(prefix)), md5_file(idx_path(prefix))]
    before = bin_path(prefix).stat().st_mtime_ns
    done = command("data_prep", "preprocess", "--input", shards[0], "--tokenizer", tokenizer, "--output-prefix", prefix)
    assert (done.returncode, "already made" in done.stdout) == (0, True)
    assert bin_path(prefix).stat().st_mtime_ns == before
    arguments = ["--input", *shards[:2], "--tokenizer", tokenizer, "--output-prefix", prefix]
    assert_refused(command("data_prep", "preprocess", *arguments), "x.bin exists", "--force")
    assert command("data_prep", "preprocess", *arguments, "--force").returncode == 0
    assert len(IndexedDataset(prefix)) == 120


GOOD = b'{"text": "tree"}\n'


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.json", GOOD + b"{oops\n", "x.json:2: not a JSON object"),
        ("x.json", GOOD + b"\n" + GOOD, "x.json:2: not a JSON object"),
        ("x.json", GOOD + b'["text"]\n', 'x.json:2: no "text" with a string'),
        ("x.json", GOOD + b'{"text": null}\n', 'x.json:2: no "text" with a string'),
        ("x.json", GOOD + b'{"txt": "tree"}\n', 'x.json:2: no "text" with a string'),
        ("x.json", GOOD + b'{"text": "\xff"}\n', "x.json:2: not a JSON object"),
        ("x.json", GOOD + b'{"text": "\\ud800"}\n', "x.json:2: the text holds a lone surrogate"),
        ("x.json.gz", gzip.compress(GOOD * 50_000)[:-20], "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", gzip.compress(GOOD) + b"garbage", "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", GOOD, "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", b"", "x.json.gz: truncated or damaged gzip file"),
        ("x.json.gz", gzip.compress(GOOD * 50_000)[:-8] + bytes(8), "x.json.gz: truncated or damaged gzip file"),
        ("x.json", b'{"text": "' + b"a" * (1 << 25) + b'"}\n', "x.json:1: a line of more than"),
    ],
)
def test_bad_input_is_named_and_nothing_is_left(
    name: str, content: bytes, complaint: str, tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    output = tmp_path / "out"
    arguments = ["--input", tmp_path / name, "--tokenizer", tokenizer, "--output-prefix", output / "x"]
    assert_refused(command("data_prep", "preprocess", *arguments), complaint)
    assert {path.name for path in output.iterdir()} <= {"x.parts"}  # what other workers had finished
    assert not list(output.rglob("*.partial"))


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
    change: Callable[[dict[str, str]], dict[str, str]], complaint: str, corpus: Path, tokenizer: Path, tmp_path: Path
) -> None:
    good = {
        "--input": str(corpus / "c4-validation.json"),
        "--tokenizer": str(tokenizer),
        "--output-prefix": str(tmp_path / "x"),
    }
    words = [word for pair in change(good).items() for word in pair]
    assert_refused(command("data_prep", "preprocess", *words), complaint)


def test_samples_are_the_windows_training_sees(tmp_path: Path) -> None:
    tokens = {name: write_dataset(tmp_path / name, [30, 11, 60], seed=seed) for seed, name in enumerate("xy")}
    data = ["--data-path", "0.5", tmp_path / "x", "0.5", tmp_path / "y", "--seq-length", 8]
    arguments = [*data, "--num-samples", 20, "--seed", 9, "--first", 3, "--count", 4, "--output", tmp_path / "s.npy"]
    done = command("data_prep", "samples", *arguments)
    assert done.returncode == 0, done.stderr
    rows = np.load(tmp_path / "s.npy")
    assert (rows.dtype, rows.shape) == (np.int64, (4, 8))
    order = np.arange(12, dtype=np.uint32)
    np.random.RandomState(9).shuffle(order)
    for row, (name, item) in zip(rows, (("y", 1), ("x", 2), ("y", 2), ("x", 3)), strict=True):
        np.testing.assert_array_equal(row, tokens[name][8 * order[item] : 8 * order[item] + 8])


def test_samples_of_an_evaluation_are_padded(tmp_path: Path) -> None:
    tokens = write_dataset(tmp_path / "x", [30])
    arguments = ["--data-path", tmp_path / "x", "--seq-length", 8, "--num-samples", -1, "--seed", 1]
    for more, width in (([], 8), (["--plus-one"], 9)):
        output = tmp_path / f"{width}.npy"
        done = command("data_prep", "samples", *arguments, *more, "--output", output)
        assert done.returncode == 0, done.stderr
        rows = np.load(output)
        assert rows.shape == (4, width)
        (short,) = [row for row in rows if -1 in row]
        np.testing.assert_array_equal(short[:6], tokens[24:])
        assert (short[6:] == -1).all()


def test_samples_are_printed_as_text(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"text": "tree house river"}\n{"text": "stone"}\n')
    preprocess([tmp_path / "x.json"], tokenizer, tmp_path / "x")
    arguments = ["--data-path", tmp_path / "x", "--seq-length", 100, "--num-samples", -1, "--seed", 1]
    arguments += ["--output", tmp_path / "s.npy", "--tokenizer"]
    assert_refused(command("data_prep", "samples", *arguments, tmp_path / "x.json"), "not a SentencePiece model")
    assert not (tmp_path / "s.npy").exists()
    done = command("data_prep", "samples", *arguments, tokenizer)
    assert done.stdout.splitlines()[-1] == "tree house river stone"


def test_samples_out_of_range_are_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [30])
    arguments = ["--data-path", tmp_path / "x", "--seq-length", 8, "--num-samples", 3, "--seed", 1]
    arguments += ["--output", tmp_path / "s.npy"]
    assert_refused(command("data_prep", "samples", *arguments, "--first", 2, "--count", 2), "samples 0 to 2")
    assert_refused(command("data_prep", "samples", *arguments, "--first", -1), "samples 0 to 2")
    assert not (tmp_path / "s.npy").exists()
