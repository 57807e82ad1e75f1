"""The .bin/.idx format, byte by byte."""

import struct
from pathlib import Path

import numpy as np
import pytest

from data_prep.token_files import indexed_dataset
from data_prep.token_files.indexed_dataset import IndexedDataset, IndexedDatasetWriter, bin_path, idx_path, token_dtype
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from tests.support import golden, write_dataset, write_golden_corpora


def test_bytes_of_a_small_dataset(tmp_path: Path) -> None:
    with IndexedDatasetWriter(tmp_path / "x", np.dtype("<u2")) as writer:
        writer.append(np.array([258, 7, 9]), [1, 2])
        writer.append(np.array([65535]), [1])
    assert bin_path(tmp_path / "x").read_bytes() == bytes([2, 1, 7, 0, 9, 0, 255, 255])
    expected = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 3, 4)
    expected += struct.pack("<3i", 1, 2, 1) + struct.pack("<3q", 0, 2, 6) + struct.pack("<4q", 0, 1, 2, 3)
    assert idx_path(tmp_path / "x").read_bytes() == expected


def test_recorded_corpora_are_reproduced(tmp_path: Path) -> None:
    write_golden_corpora(tmp_path)
    for name, made in golden("data_manifest.json")["corpora"].items():
        assert md5_file(tmp_path / f"{name}.bin") == made["md5_bin"]
        assert md5_file(tmp_path / f"{name}.idx") == made["md5_idx"]


@pytest.mark.parametrize(("vocab_size", "dtype"), [(50257, "uint16"), (65499, "uint16"), (65500, "int32")])
def test_dtype_follows_the_vocabulary(vocab_size: int, dtype: str) -> None:
    assert token_dtype(vocab_size).name == dtype


def test_tokens_too_large_for_the_dtype_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"token ids 1 to 65536 do not fit uint16"),
        IndexedDatasetWriter(tmp_path / "x", np.dtype("<u2")) as writer,
    ):
        writer.append(np.array([1, 65536]), [2])
    assert list(tmp_path.iterdir()) == []


def header(sequences: int, document_ends: int, code: int = 8) -> bytes:
    return b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, sequences, document_ends)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda prefix: idx_path(prefix).unlink(), "x.idx: no such file"),
        (lambda prefix: idx_path(prefix).write_bytes(b"MMID"), "too short for an index"),
        (lambda prefix: idx_path(prefix).write_bytes(b"TNTIDX" + bytes(60)), "not an MMIDIDX version 1 index"),
        (lambda prefix: idx_path(prefix).write_bytes(idx_path(prefix).read_bytes()[:-8]), "its header announces"),
        (lambda prefix: idx_path(prefix).write_bytes(header(1 << 60, 1)), "announces 1152921504606846976 sequences"),
        (lambda prefix: idx_path(prefix).write_bytes(header(0, 1 << 62)), "announces 0 sequences and 4611686018427387"),
        (lambda prefix: idx_path(prefix).write_bytes(header(0, 0, code=6)), "holds float64 values, not token ids"),
        (lambda prefix: bin_path(prefix).write_bytes(bytes(18)), "x.bin: 18 bytes, but x.idx describes 20"),
    ],
)
def test_damaged_files_are_named(damage: object, complaint: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [4, 6])
    assert callable(damage)
    damage(tmp_path / "x")
    with pytest.raises(InputError, match=complaint):
        IndexedDataset(tmp_path / "x")


def test_a_file_in_place_of_a_prefix_is_named(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [4, 6])
    for ending in (".bin", ".idx"):
        with pytest.raises(InputError, match=rf"give the prefix \S+/x, without {ending}$"):
            IndexedDataset(tmp_path / f"x{ending}")


def test_index_is_written_in_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(indexed_dataset, "BLOCK_DOCUMENTS", 7)
    sizes = np.random.default_rng(0).integers(1, 50, size=100).astype(np.int32)
    with indexed_dataset.IndexedDatasetWriter(tmp_path / "x", np.dtype("<u2")) as writer:
        writer.append(np.arange(sizes.sum(), dtype="<u2"), sizes)
    dataset = IndexedDataset(tmp_path / "x")
    np.testing.assert_array_equal(dataset.sizes, sizes)
    np.testing.assert_array_equal(dataset.pointers, 2 * (np.cumsum(sizes) - sizes))
    np.testing.assert_array_equal(dataset.document_ends, np.arange(101))
    assert dataset.num_tokens == sizes.sum()
