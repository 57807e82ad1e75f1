"""inspect: what is in a dataset, every check of its index, and comparisons."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.token_files import dataset_blocks
from data_prep.token_files.dataset_blocks import Counts, DatasetBlocks, Difference, check_index, first_difference
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter, bin_path, idx_path, token_dtype
from data_prep.tokenizing.tokenizer import train_tokenizer
from stage.errors import CheckFailed, InputError
from tests.support import assert_refused, command, fresh_command, write_dataset

SIZES = [5, 1, 7, 3, 4]


def write(prefix: Path, documents: list[list[int]], vocab_size: int = 50257) -> Path:
    with IndexedDatasetWriter(prefix, token_dtype(vocab_size)) as writer:
        for ids in documents:
            writer.add_documents(np.array(ids), [len(ids)])
    return prefix


def inspected(*arguments: object, status: int = 0) -> Any:
    done = command("data_prep", "inspect", *arguments, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks in a dataset of a few tokens."""
    monkeypatch.setattr(dataset_blocks, "BLOCK_ITEMS", 3)


def test_figures_of_a_small_dataset(tmp_path: Path) -> None:
    documents = [[7], [7, 7, 300], [7, 2], [300, 2, 7, 7, 9, 7, 7, 7]]
    prefix = write(tmp_path / "x", documents)
    report = inspected("--data-path", prefix)
    assert (report["documents"], report["tokens"], report["dtype"]) == (4, 14, "uint16")
    assert (report["bin_bytes"], report["idx_bytes"]) == (28, 42 + 20 * 4)
    assert (report["shortest"], report["mean_length"], report["longest"]) == (1, 3.5, 8)
    assert report["percentiles"]["25"] == 1
    assert report["percentiles"]["50"] == 2
    assert report["percentiles"]["75"] == 3
    assert report["percentiles"]["99"] == 8
    assert (report["distinct_tokens"], report["largest_id"]) == (4, 300)
    assert [(token["id"], token["count"]) for token in report["most_frequent"]] == [(7, 9), (2, 2), (300, 2), (9, 1)]
    assert [token["id"] for token in report["least_frequent"]] == [9, 300, 2, 7]
    assert report["vocabulary"] is None
    shown = command("data_prep", "inspect", "--data-path", prefix).stdout
    assert "x: 4 documents, 14 tokens, uint16" in shown
    assert "1 to 8 tokens, mean 3.5, median 2" in shown
    assert "7 64.29 %, 2 14.29 %" in shown


@pytest.mark.usefixtures("small_blocks")
def test_figures_do_not_depend_on_blocks(tmp_path: Path) -> None:
    tokens = write_dataset(tmp_path / "x", [2, 900, 17, 2], vocab_size=40)
    data = DatasetBlocks(tmp_path / "x")
    assert check_index(data) == 921
    counts = dataset_blocks.count_tokens(data, lambda _: None)
    np.testing.assert_array_equal(counts.values, np.unique(tokens))
    np.testing.assert_array_equal(counts.counts, np.bincount(tokens)[counts.values])
    lengths = dataset_blocks.count_lengths(data)
    assert dict(zip(lengths.values.tolist(), lengths.counts.tolist(), strict=True)) == {2: 2, 17: 1, 900: 1}
    for token, place in ((0, (0, 0)), (1, (0, 1)), (2, (1, 0)), (901, (1, 899)), (902, (2, 0)), (920, (3, 1))):
        assert data.place_of(token) == place
    for document, (start, stop) in enumerate(((0, 2), (2, 902), (902, 919), (919, 921), (921, 921))):
        np.testing.assert_array_equal(data.document(document), tokens[start:stop])


@pytest.mark.parametrize("seed", range(3))
def test_percentiles_are_numpys_lower_or_equal_ranks(seed: int) -> None:
    sample = np.random.default_rng(seed).integers(0, 50, 37)
    counts = Counts(*np.unique(sample, return_counts=True))
    for percent in (1, 10, 50, 90, 99, 100):
        assert counts.percentile(percent) == np.percentile(sample, percent, method="inverted_cdf")
    assert counts.mean == pytest.approx(sample.mean())


def test_long_documents_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_blocks, "COUNTED_DIRECTLY", 10)
    write_dataset(tmp_path / "x", [9, 10, 25, 10, 3], vocab_size=10)
    lengths = dataset_blocks.count_lengths(DatasetBlocks(tmp_path / "x"))
    assert lengths.values.tolist() == [3, 9, 10, 25]
    assert lengths.counts.tolist() == [1, 1, 2, 1]


def patch(path: Path, offset: int, format_: str, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack(format_, value))


def size_at(number: int) -> int:
    return 34 + 4 * number


def pointer_at(number: int) -> int:
    return 34 + 4 * len(SIZES) + 8 * number


def end_at(number: int) -> int:
    return 34 + 12 * len(SIZES) + 8 * number


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda p: patch(idx_path(p), size_at(2), "<i", 0), "x.idx: document 2 has 0 tokens from byte 12 on"),
    (lambda p: patch(idx_path(p), size_at(3), "<i", -9), "x.idx: document 3 has -9 tokens"),
    (lambda p: patch(idx_path(p), size_at(3), "<i", 4), "x.idx: document 4 has 4 tokens from byte 32 on, expected at"),
    (lambda p: patch(idx_path(p), pointer_at(0), "<q", 2), "x.idx: document 0 has 5 tokens from byte 2 on, expected"),
    (
        lambda p: patch(idx_path(p), pointer_at(3), "<q", 27),
        "tokens from byte 27 on, expected at least 1 token and byte 26",
    ),
    (lambda p: patch(idx_path(p), end_at(0), "<q", 1), "x.idx: document 0 ends after 1 sequences, not 0"),
    (lambda p: patch(idx_path(p), end_at(4), "<q", 3), "x.idx: document 3 ends after 3 sequences, not 4"),
    (lambda p: bin_path(p).write_bytes(bytes(36)), "x.bin: 36 bytes, but its index describes 40; document 4 is the"),
    (lambda p: bin_path(p).write_bytes(bytes(25)), "describes 40; document 2 is the first that is not whole"),
    (lambda p: bin_path(p).write_bytes(b""), "describes 40; document 0 is the first that is not whole"),
    (lambda p: bin_path(p).write_bytes(bytes(41)), "describes 40; 1 bytes follow the last document, number 4"),
]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("damage", "complaint"), DAMAGE)
def test_the_first_bad_document_is_named(damage: Callable[[Path], object], complaint: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SIZES)
    damage(tmp_path / "x")
    with pytest.raises(CheckFailed) as failure:
        check_index(DatasetBlocks(tmp_path / "x"))
    assert complaint in str(failure.value)


def test_a_failed_check_exits_with_1(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SIZES)
    patch(idx_path(tmp_path / "x"), pointer_at(3), "<q", 27)
    assert_refused(command("data_prep", "inspect", "--data-path", tmp_path / "x"), "x.idx: document 3", status=1)


def test_other_layouts_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "empty", [])
    with pytest.raises(CheckFailed, match=r"empty\.idx: holds no document"):
        check_index(DatasetBlocks(tmp_path / "empty"))
    write_dataset(tmp_path / "x", [2, 3])
    index = idx_path(tmp_path / "x").read_bytes()
    one_document = index[:26] + struct.pack("<Q", 2) + index[34:-24] + struct.pack("<2q", 0, 2)
    idx_path(tmp_path / "x").write_bytes(one_document)
    with pytest.raises(CheckFailed, match="1 documents in 2 sequences; the benchmark's files have one sequence per"):
        check_index(DatasetBlocks(tmp_path / "x"))
    idx_path(tmp_path / "x").write_bytes(index[:17] + b"\x06" + index[18:])
    with pytest.raises(InputError, match=r"x\.idx: holds float64 values, not token ids"):
        DatasetBlocks(tmp_path / "x")
    assert_refused(command("data_prep", "inspect", "--data-path", tmp_path / "none"), "none.bin: no such file")


def test_values_that_are_no_ids_are_named(tmp_path: Path) -> None:
    for bad in (-1, 1 << 20):
        write(tmp_path / "x", [[1, 2], [70_000, 3, bad, bad]], vocab_size=80_000)
        done = command("data_prep", "inspect", "--data-path", tmp_path / "x")
        assert_refused(done, f"x.bin: document 1, token 2: {bad} is not a token id", status=1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_synthetic_corpus(folder / "c4", seed=1, size=CorpusSize(1, 60, 1))
    train_tokenizer(sorted((folder / "c4" / "en").iterdir()), folder / "t.model", vocab_size=400)
    return folder / "t.model"


def test_a_tokenizer_shows_pieces_and_text(tokenizer: Path, tmp_path: Path) -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    texts = ["the house of the tree", "naïve ☃ the", "7 the"]
    documents = [model.encode(text) for text in texts]
    report = inspected("--data-path", write(tmp_path / "x", documents, vocab_size=400), "--tokenizer", tokenizer)
    the = model.piece_to_id("▁the")
    listed = next(token for token in report["most_frequent"] if token["id"] == the)
    assert (listed["count"], listed["piece"]) == (4, "▁the")
    known = report["vocabulary"]
    used = {token for document in documents for token in document}
    assert (known["pieces"], known["unused_pieces"], known["tokens_beyond"]) == (400, 400 - len(used), 0)
    assert known["decoded_documents"] == 3
    text_bytes = sum(len(text.encode()) for text in texts)
    assert known["text_bytes_per_token"] == text_bytes / sum(map(len, documents))
    shown = command("data_prep", "inspect", "--data-path", tmp_path / "x", "--tokenizer", tokenizer).stdout
    assert f"{the} '▁the'" in shown
    assert "bytes per token (3 documents decoded)" in shown


def test_tokens_beyond_the_vocabulary_fail_after_the_report(tokenizer: Path, tmp_path: Path) -> None:
    prefix = write(tmp_path / "x", [[5, 6], [399, 5, 400, 401, 400]], vocab_size=50257)
    done = command("data_prep", "inspect", "--data-path", prefix, "--tokenizer", tokenizer)
    assert_refused(done, "3 tokens are beyond the tokenizer's 400 pieces", "document 1, token 2", status=1)
    assert "3 tokens beyond it" in done.stdout
    assert command("data_prep", "inspect", "--data-path", prefix).returncode == 0  # nothing to compare with


A = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [1]]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (A, None),
        ([[1, 2, 3], [4, 5], [6, 7, 0, 9], [1]], Difference(2, 2, 8, 0)),
        ([[1, 2, 3], [4, 0], [6, 7, 8, 9], [1]], Difference(1, 1, 5, 0)),
        ([[1, 2, 3], [4], [5, 6, 7, 8, 9], [1]], Difference(1, 1, 5, None)),
        ([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1]], Difference(1, 2, None, 6)),
        ([[1, 2, 0], [4, 5], [6, 7], [8, 9], [1]], Difference(0, 2, 3, 0)),
        ([[1, 2, 3], [4, 5], [6, 0], [8, 9], [1]], Difference(2, 1, 7, 0)),
        ([[1, 2, 3], [4, 5], [6, 7, 8, 9]], Difference(3, 0, 1, None)),
        ([*A, [5, 5]], Difference(4, 0, None, 5)),
        ([[1, 2, 3]], Difference(1, 0, 4, None)),
    ],
)
def test_the_first_difference(other: list[list[int]], difference: Difference | None, tmp_path: Path) -> None:
    one, two = (DatasetBlocks(write(tmp_path / name, documents)) for name, documents in (("a", A), ("b", other)))
    assert first_difference(one, two) == difference
    if difference is not None:
        mirrored = Difference(difference.document, difference.token, difference.there, difference.here)
        assert first_difference(two, one) == mirrored


def test_a_comparison_of_two_datasets(tmp_path: Path) -> None:
    one = write(tmp_path / "a", [[1, 1, 2, 2], [1, 1]])
    other = write(tmp_path / "b", [[1, 1, 3, 3], [1, 1]], vocab_size=80_000)
    done = command("data_prep", "inspect", "--data-path", one, "--against", other)
    assert_refused(done, f"{one} and {other} differ, first in document 0, token 2: id 2 and id 3", status=1)
    assert "+0 documents, +0 tokens, largest gap of lengths 0.0000, total variation of tokens 0.3333" in done.stdout
    against = inspected("--data-path", one, "--against", other, status=1)["against"]
    assert against["other"]["dtype"] == "int32"
    assert against["first_difference"] == {"document": 0, "token": 2, "here": 2, "there": 3}
    assert against["length_distance"] == 0
    assert against["token_distance"] == pytest.approx(1 / 3)
    same = command(
        "data_prep", "inspect", "--data-path", one, "--against", write(tmp_path / "c", [[1, 1, 2, 2], [1, 1]])
    )
    assert same.returncode == 0, same.stderr
    assert "the same documents, token by token" in same.stdout


def test_distances_of_distributions() -> None:
    one = Counts(np.array([1, 2, 5]), np.array([2, 1, 1]))
    other = Counts(np.array([2, 5, 9]), np.array([2, 2, 4]))
    assert dataset_blocks.total_variation(one, other) == pytest.approx((0.5 + 0 + 0 + 0.5) / 2)
    assert dataset_blocks.largest_gap(one, other) == pytest.approx(0.5)
    assert dataset_blocks.total_variation(one, one) == dataset_blocks.largest_gap(other, other) == 0


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    prefix = write(tmp_path / "x", [[1] * length for length in (1, 1, 5, 200)])
    picture = tmp_path / f"p{suffix}"
    made = []
    for _ in range(2):
        done = command("data_prep", "inspect", "--data-path", prefix, "--against", prefix, "--picture", picture)
        assert done.returncode == 0, done.stderr
        made.append(picture.read_bytes())
    assert made[0] == made[1]
    assert made[0].startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == sorted([".bin", ".idx", suffix])


def test_a_picture_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write_dataset(tmp_path / "x", SIZES)
    arguments = ["inspect", "--data-path", tmp_path / "x", "--picture"]
    assert_refused(fresh_command("data_prep", *arguments, tmp_path / "p.svg"), "pip install matplotlib", "not here")
    assert_refused(command("data_prep", *arguments, tmp_path / "p.jpg"), "ends in .svg or .png")
    assert command("data_prep", *arguments[:-1]).returncode == 0
