"""Index arrays kept on disk: the same as built in memory, whoever opens them, in whatever state the folder is."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.sample_order import kept_index
from data_prep.sample_order.kept_index import index_folder
from data_prep.sample_order.sample_index import build_sample_index
from data_prep.sample_order.token_windows import SingleDataset, open_token_windows
from data_prep.token_files.file_array import FileArray
from foundation.outputs import lock
from tests.support import write_dataset

SIZES = [7, 30, 1, 12, 5]
ARRAYS = ("sample_idx", "shuffle_idx")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "x", SIZES)
    return tmp_path / "x"


def _open(prefix: Path, seed: int = 3) -> SingleDataset:
    windows = open_token_windows([str(prefix)], sequence_length=4, num_samples=40, seed=seed)
    assert isinstance(windows, SingleDataset)
    return windows


def _assert_right(windows: SingleDataset) -> None:
    expected = build_sample_index(np.array(SIZES, np.int32), sequence_length=4, num_samples=40, seed=3)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(windows.index, name), getattr(expected, name), strict=True)
    assert windows.index.num_epochs == expected.num_epochs == 3


def _kept(prefix: Path) -> list[Path]:
    return sorted(index_folder(prefix).glob("*/*.npy"))


def test_arrays_are_plain_npy_files_that_are_read_where_they_lie(prefix: Path) -> None:
    _assert_right(_open(prefix))
    before = {path: path.stat().st_mtime_ns for path in _kept(prefix)}
    windows = _open(prefix)
    for name in ARRAYS:
        array = getattr(windows.index, name)
        assert isinstance(array, FileArray)
        (path,) = (path for path in before if path.stem == name)
        np.testing.assert_array_equal(np.load(path, mmap_mode="r", allow_pickle=False), array, strict=True)
    _open(prefix, seed=4)
    new = set(_kept(prefix)) - before.keys()
    assert [path.stem for path in new] == ["shuffle_idx"]  # another seed costs another shuffle only
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not list(index_folder(prefix).glob("*.partial"))


def test_no_option_and_no_other_dataset_is_mistaken_for_another(prefix: Path) -> None:
    usual: dict[str, Any] = {"sequence_length": 4, "num_samples": 40, "seed": 3, "plus_one": False}
    changes: list[dict[str, Any]] = [
        {}, {"sequence_length": 5}, {"num_samples": 41}, {"num_samples": -1}, {"seed": 4}, {"plus_one": True},
    ]  # fmt: skip
    for sizes in (SIZES, SIZES[::-1]):
        write_dataset(prefix, sizes)
        for change in changes * 2:
            windows = open_token_windows([str(prefix)], **(usual | change))
            expected = build_sample_index(np.array(sizes, np.int32), **(usual | change))
            assert isinstance(windows, SingleDataset)
            for name in ARRAYS:
                np.testing.assert_array_equal(getattr(windows.index, name), getattr(expected, name), strict=True)
    assert len(_kept(prefix)) == 2 * (5 + 6)  # another seed costs another shuffle only


def test_nobody_waits_for_ever_for_anothers_index(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process holds its lock, and makes nothing."""
    monkeypatch.setattr(lock, "PATIENCE_S", 0.1)
    real, building, waited = kept_index.NewArray.write, threading.Event(), threading.Event()

    def stuck(self: kept_index.NewArray, path: Path) -> str:
        if threading.current_thread() is not threading.main_thread():
            building.set()
            waited.wait(30)
        return real(self, path)

    monkeypatch.setattr(kept_index.NewArray, "write", stuck)
    found: list[SingleDataset] = []
    other = threading.Thread(target=lambda: found.append(_open(prefix)))
    other.start()
    assert building.wait(30)
    _assert_right(_open(prefix))
    waited.set()
    other.join()
    _assert_right(found[0])


def test_a_large_index_is_waited_for(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process builds it in more than the usual patience; the other reads it, and builds none."""
    monkeypatch.setattr(lock, "PATIENCE_S", 0.1)
    monkeypatch.setattr(kept_index, "SLOWEST_BYTES_PER_S", 10.0)  # some 300 bytes: half a minute
    real, writing = kept_index.NewArray.write, threading.Event()
    writers: list[threading.Thread] = []

    def slow(self: kept_index.NewArray, path: Path) -> str:
        writers.append(threading.current_thread())
        writing.set()
        time.sleep(0.5)
        return real(self, path)

    monkeypatch.setattr(kept_index.NewArray, "write", slow)
    builder = threading.Thread(target=lambda: _open(prefix))
    builder.start()
    assert writing.wait(30)
    windows = _open(prefix)
    builder.join()
    _assert_right(windows)
    assert isinstance(windows.index.sample_idx, FileArray)
    assert writers[0] is builder and len(writers) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: np.save(path, np.load(path).reshape(1, -1)),
        lambda path: path.unlink(),
    ],
    ids=["truncated", "shape", "missing"],
)
def test_damaged_files_are_told_and_not_used(
    damage: Callable[[Path], None], prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _open(prefix)
    damage(_kept(prefix)[1])
    _assert_right(_open(prefix))
    (told,) = capsys.readouterr().err.splitlines()
    assert str(index_folder(prefix)) in told
    assert told.endswith("until then the index is built in memory, by each process for itself")


def test_without_a_place_to_keep_it_the_index_is_built_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("x", "y"):
        write_dataset(tmp_path / name, SIZES)
        index_folder(tmp_path / name).touch()  # a file in its place; permissions would not stop root
    _assert_right(_open(tmp_path / "x"))
    (complaint,) = capsys.readouterr().err.splitlines()
    assert complaint.startswith(f"{tmp_path}/x.index: ")
    data_path = ["0.5", str(tmp_path / "x"), "0.5", str(tmp_path / "y")]
    assert len(open_token_windows(data_path, sequence_length=4, num_samples=40, seed=3)) >= 40
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".bin"] * 2 + [".idx"] * 2 + [".index"] * 2
