"""Index arrays kept on disk: the same as built in memory, whoever opens them, in whatever state the folder is."""

import errno
import hashlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sample_order import blend
from data_prep.sample_order.index_cache import HOST, IndexCache, index_folder
from data_prep.sample_order.sample_index import build_sample_index
from data_prep.sample_order.token_windows import BlendedDataset, SingleDataset, open_token_windows
from data_prep.token_files.file_array import FileArray
from stage.errors import InputError
from tests.support import write_dataset

FORK = multiprocessing.get_context("fork")
SIZES = [7, 30, 1, 12, 5]
ARRAYS = ("document_idx", "sample_idx", "shuffle_idx")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "x", SIZES)
    return tmp_path / "x"


def _open(prefix: Path) -> SingleDataset:
    windows = open_token_windows([str(prefix)], sequence_length=4, num_samples=40, seed=3)
    assert isinstance(windows, SingleDataset)
    return windows


def _assert_right(windows: SingleDataset) -> None:
    expected = build_sample_index(np.array(SIZES, np.int32), sequence_length=4, num_samples=40, seed=3)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(windows.index, name), getattr(expected, name), strict=True)
    assert windows.index.num_epochs == expected.num_epochs == 3
    assert windows.index.separate_last_epoch == expected.separate_last_epoch


def _kept(prefix: Path) -> list[Path]:
    return sorted(index_folder(prefix).glob("*.npy"))


def _partial(prefix: Path) -> list[Path]:
    return sorted(index_folder(prefix).glob("*.partial"))


def test_files_are_plain_npy_and_named_by_what_they_depend_on(prefix: Path) -> None:
    windows = _open(prefix)
    identity = hashlib.md5(np.array(SIZES, "<i4").tobytes()).hexdigest()[:12]
    names = {
        f"{identity}_3epochs.document_idx.npy": windows.index.document_idx,
        f"{identity}_4tokens_40samples.sample_idx.npy": windows.index.sample_idx,
        f"{identity}_4tokens_40samples_seed3.shuffle_idx.npy": windows.index.shuffle_idx,
    }
    assert {path.name for path in _kept(prefix)} == set(names)
    for name, array in names.items():
        read = np.load(index_folder(prefix) / name, mmap_mode="r", allow_pickle=False)
        np.testing.assert_array_equal(read, array, strict=True)


def test_what_is_kept_is_read_from_where_it_lies_and_not_written_again(prefix: Path) -> None:
    _open(prefix)
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in _kept(prefix)]
    windows = _open(prefix)
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in _kept(prefix)] == before
    for name in ARRAYS:
        assert isinstance(getattr(windows.index, name), FileArray)


def test_a_kept_file_that_is_cut_while_it_is_read_is_one_line(prefix: Path) -> None:
    windows = _open(prefix)
    (path,) = index_folder(prefix).glob("*.shuffle_idx.npy")
    os.truncate(path, 200)
    with pytest.raises(InputError, match=r"shuffle_idx.npy: became shorter while it was read; remove .*x.index, which"):
        _windows_of(windows)


def _windows_of(windows: SingleDataset) -> list[Any]:
    return [windows.window(sample) for sample in range(len(windows))]


def test_another_seed_costs_another_shuffle_only(prefix: Path) -> None:
    _open(prefix)
    open_token_windows([str(prefix)], sequence_length=4, num_samples=40, seed=4)
    assert [path.name.split(".")[1] for path in _kept(prefix)].count("shuffle_idx") == 2
    assert len(_kept(prefix)) == 4


REQUESTS = st.lists(
    st.tuples(
        st.lists(st.integers(1, 9), min_size=1, max_size=3),
        st.integers(1, 5),
        st.integers(-1, 12),
        st.integers(0, 2),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
)
"""Documents' lengths, sequence length, number of samples, seed, and whether to read one token more."""


@pytest.mark.parametrize("examples", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_no_option_and_no_other_dataset_is_mistaken_for_another(
    examples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=examples)
    @given(requests=REQUESTS)
    def check(requests: list[tuple[list[int], int, int, int, bool]]) -> None:
        prefix = tmp_path_factory.mktemp("data") / "x"
        for sizes, length, num_samples, seed, plus_one in requests:
            if sum(sizes) <= int(plus_one):
                continue
            write_dataset(prefix, sizes)
            options = {"sequence_length": length, "num_samples": num_samples, "seed": seed, "plus_one": plus_one}
            windows = open_token_windows([str(prefix)], **options)  # type: ignore[arg-type]
            expected = build_sample_index(np.array(sizes, np.int32), **options)  # type: ignore[arg-type]
            assert isinstance(windows, SingleDataset)
            for name in ARRAYS:
                np.testing.assert_array_equal(getattr(windows.index, name), getattr(expected, name), strict=True)

    check()


def test_blends_are_kept_by_weight_and_size(tmp_path: Path) -> None:
    cache = IndexCache(tmp_path)
    cases = [([0.3, 0.7], 50), ([0.3, 0.7], 51), ([0.3 + 1e-15, 0.7 - 1e-15], 50), ([0.3, 0.3, 0.4], 50)]
    for weights, size in cases * 2:
        kept, expected = blend.blend_index(weights, size, keep=cache.array), blend.blend_index(weights, size)
        for found, array in zip(kept, expected, strict=True):
            np.testing.assert_array_equal(found, array, strict=True)
    assert len(list(tmp_path.glob("*.npy"))) == 2 * len(cases)
    blend.blend_index([1 / 255] * 255, 10, keep=cache.array)  # a name that fits a file system
    assert cache.problem is None


def _open_and_tell(data_path: list[str], start: Any, results: Any) -> None:
    start.wait()
    windows = open_token_windows(data_path, sequence_length=4, num_samples=3000, seed=3)
    assert isinstance(windows, BlendedDataset)
    arrays = [getattr(part.index, name) for part in windows.parts for name in ARRAYS]
    arrays += [windows.dataset_index, windows.dataset_sample_index]
    results.put([(str(array.dtype), array.shape, hashlib.md5(array[:].tobytes()).hexdigest()) for array in arrays])


def _no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.mark.parametrize("locks", [True, False])
def test_many_processes_at_once_leave_one_set_of_files(
    locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not locks:
        monkeypatch.setattr("fcntl.flock", _no_locks)
    for name in ("x", "y"):
        write_dataset(tmp_path / name, SIZES, seed=ord(name))
    data_path = ["0.5", str(tmp_path / "x"), "0.5", str(tmp_path / "y")]
    start, results = FORK.Barrier(6), FORK.Queue()
    processes = [FORK.Process(target=_open_and_tell, args=(data_path, start, results)) for _ in range(6)]
    for process in processes:
        process.start()
    told = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert all(other == told[0] for other in told)
    assert (len(_kept(tmp_path / "x")), len(_kept(tmp_path / "y"))) == (5, 3)
    for name in ("x", "y"):
        assert {path.name for path in index_folder(tmp_path / name).iterdir() if path.suffix != ".npy"} == {"lock"}


def _die_before_the_rename(prefix: Path) -> None:
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    _open(prefix)


def test_what_a_killed_builder_left_is_not_used_and_is_removed(prefix: Path) -> None:
    killed = FORK.Process(target=_die_before_the_rename, args=(prefix,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert (len(_kept(prefix)), len(_partial(prefix))) == (0, 1)
    _assert_right(_open(prefix))
    assert (len(_kept(prefix)), len(_partial(prefix))) == (3, 0)


def test_what_another_machine_is_writing_is_left_alone(prefix: Path) -> None:
    index_folder(prefix).mkdir()
    young, old = (index_folder(prefix) / f"a.npy.not-{HOST}.{number}.partial" for number in (1, 2))
    young.touch()
    old.touch()
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    _assert_right(_open(prefix))
    assert _partial(prefix) == [young]


def _same_bytes_as_other_dtype(path: Path) -> None:
    array = np.load(path)
    np.save(path, array.view(np.float32))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"x" * path.stat().st_size),
        lambda path: np.save(path, np.load(path).reshape(1, -1)),
        _same_bytes_as_other_dtype,
        lambda path: np.save(path, np.asfortranarray(np.load(path).reshape(-1, 1))),
    ],
    ids=["truncated", "longer", "empty", "foreign", "shape", "dtype", "transposed"],
)
@pytest.mark.parametrize("number", range(3))
def test_damaged_files_are_built_again(damage: Callable[[Path], None], number: int, prefix: Path) -> None:
    _open(prefix)
    path = _kept(prefix)[number]
    good = path.read_bytes()
    damage(path)
    assert path.read_bytes() != good
    _assert_right(_open(prefix))
    assert path.read_bytes() == good


def test_without_a_place_to_keep_it_the_index_is_built_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("x", "y"):
        write_dataset(tmp_path / name, SIZES)
        index_folder(tmp_path / name).touch()  # a file in its place; permissions would not stop root
    _assert_right(_open(tmp_path / "x"))
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"{tmp_path}/x.index: File exists; ")
    assert len(complaint.splitlines()) == 1
    windows = open_token_windows(
        ["0.5", str(tmp_path / "x"), "0.5", str(tmp_path / "y")], sequence_length=4, num_samples=40, seed=3
    )
    assert len(windows) >= 40
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("x.bin", "x.idx", "x.index"),
        *("y.bin", "y.idx", "y.index"),
    ]


def test_a_full_disk_leaves_nothing_and_builds_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    cache, built = IndexCache(tmp_path / "x.index"), []

    def build() -> np.ndarray[Any, Any]:
        built.append(1)
        return np.arange(5)

    np.testing.assert_array_equal(cache.array("five", np.int64, (5,), build), np.arange(5))
    assert len(built) == 1
    assert cache.problem is not None
    assert "No space left on device" in cache.problem
    assert [path.name for path in (tmp_path / "x.index").iterdir()] == ["lock"]


def test_more_documents_than_the_index_can_number_are_refused(prefix: Path) -> None:
    with pytest.raises(InputError, match=r"x: .* epochs of 5 documents, more than the index can number in 32 bits"):
        open_token_windows([str(prefix)], sequence_length=2048, num_samples=20_000_000, seed=1)
