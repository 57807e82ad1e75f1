"""A dataset from end to end: every check of its index, counts, and where two datasets differ."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from data_prep.inspection import dataset_scan
from data_prep.inspection.dataset_scan import (
    Difference,
    check_index,
    document_ids,
    first_difference,
    place_of,
)
from data_prep.token_files import file_array, indexed_dataset
from data_prep.token_files.indexed_dataset import IndexedDataset, bin_path, idx_path
from foundation.errors import CheckFailed
from foundation.progress import Meter
from tests.data_prep.datasets import write_documents
from tests.support import write_dataset

SIZES = [5, 1, 7, 3, 4]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks in a dataset of a few tokens."""
    monkeypatch.setattr(file_array, "BLOCK_ITEMS", 3)
    monkeypatch.setattr(indexed_dataset, "BLOCK_DOCUMENTS", 3)


def _meter() -> Meter:
    return Meter(921, "tokens", None, lambda _: None, 60.0)


@pytest.mark.usefixtures("small_blocks")
def test_figures_do_not_depend_on_blocks(tmp_path: Path) -> None:
    tokens = write_dataset(tmp_path / "x", [2, 900, 17, 2], vocab_size=40)
    data = opened(tmp_path / "x")
    assert check_index(data) == 921
    counts = dataset_scan.count_tokens(data, _meter())
    np.testing.assert_array_equal(counts.index, np.unique(tokens))
    np.testing.assert_array_equal(counts, np.bincount(tokens)[counts.index])
    assert dataset_scan.count_lengths(data).to_dict() == {2: 2, 17: 1, 900: 1}
    for token, place in ((0, (0, 0)), (1, (0, 1)), (2, (1, 0)), (901, (1, 899)), (902, (2, 0)), (920, (3, 1))):
        assert place_of(data, token) == place
    for document, (start, stop) in enumerate(((0, 2), (2, 902), (902, 919), (919, 921), (921, 921))):
        np.testing.assert_array_equal(document_ids(data, document), tokens[start:stop])


def opened(prefix: Path) -> IndexedDataset:
    return IndexedDataset(prefix, any_size=True)


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
    (lambda p: patch(idx_path(p), size_at(3), "<i", 4), "x.idx: document 4 has 4 tokens from byte 32 on, expected 1"),
    (lambda p: patch(idx_path(p), pointer_at(0), "<q", 2), "x.idx: document 0 has 5 tokens from byte 2 on, expected"),
    (
        lambda p: patch(idx_path(p), pointer_at(3), "<q", 27),
        "tokens from byte 27 on, expected 1 or more from byte 26 on",
    ),
    (lambda p: patch(idx_path(p), end_at(0), "<q", 1), "x.idx: document 0 ends after 1 sequences, not 0"),
    (lambda p: patch(idx_path(p), end_at(4), "<q", 3), "x.idx: document 3 ends after 3 sequences, not 4"),
    (lambda p: bin_path(p).write_bytes(bytes(36)), "x.bin: 36 bytes, but its index describes 40; document 4 is the"),
    (lambda p: bin_path(p).write_bytes(bytes(25)), "describes 40; document 2 is the first that is not whole"),
    (lambda p: bin_path(p).write_bytes(b""), "describes 40; document 0 is the first that is not whole"),
    (lambda p: bin_path(p).write_bytes(bytes(41)), "describes 40; 1 bytes follow the last document, number 4"),
]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(("damage", "complaint"), DAMAGE, ids=range(len(DAMAGE)))
def test_the_first_bad_document_is_named(damage: Callable[[Path], object], complaint: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", SIZES)
    damage(tmp_path / "x")
    with pytest.raises(CheckFailed) as failure:
        check_index(opened(tmp_path / "x"))
    assert complaint in str(failure.value)


def test_other_layouts_are_refused(tmp_path: Path) -> None:
    write_documents(tmp_path / "empty", [])
    with pytest.raises(CheckFailed, match=r"empty\.idx: holds no document"):
        check_index(opened(tmp_path / "empty"))
    write_dataset(tmp_path / "x", [2, 3])
    index = idx_path(tmp_path / "x").read_bytes()
    one_document = index[:26] + struct.pack("<Q", 2) + index[34:-24] + struct.pack("<2q", 0, 2)
    idx_path(tmp_path / "x").write_bytes(one_document)
    with pytest.raises(CheckFailed, match="1 documents in 2 sequences; the benchmark's files have one sequence per"):
        check_index(opened(tmp_path / "x"))


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
    one = opened(write_documents(tmp_path / "a", A))
    two = opened(write_documents(tmp_path / "b", other))
    assert first_difference(one, two) == difference
    if difference is not None:
        mirrored = Difference(difference.document, difference.token, difference.there, difference.here)
        assert first_difference(two, one) == mirrored


def test_distances_of_distributions() -> None:
    one = pd.Series([2, 1, 1], [1, 2, 5])
    other = pd.Series([2, 2, 4], [2, 5, 9])
    assert dataset_scan.total_variation(one, other) == pytest.approx((0.5 + 0 + 0 + 0.5) / 2)
    assert dataset_scan.largest_gap(one, other) == pytest.approx(0.5)
    assert dataset_scan.total_variation(one, one) == dataset_scan.largest_gap(other, other) == 0
