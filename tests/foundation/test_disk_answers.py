"""A disk that gives an error says nothing: neither that something is missing, nor that a name is free."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint_convert.formats.checkpoint_files import open_checkpoint
from checkpoint_convert.formats.safetensors_arrays import safetensors_arrays
from checkpoint_convert.formats.step_files import fp32_weights_prefix
from checksums.folder_sums import compare_lists
from data_prep.corpus.input_files import require_files
from data_prep.preparation.downloaded_sums import listed_sum
from data_prep.token_files.indexed_dataset import IndexedDataset
from foundation.disk_answers import entries_in, file_is_there, folder_is_there, is_there, name_is_taken
from foundation.git import commit_of
from foundation.outputs.lock import only_one_in
from foundation.outputs.manifest import Record, record_problem
from foundation.outputs.output_parts import journalled_parts
from foundation.outputs.publication import is_taken
from foundation.outputs.publish import require_same_kind
from foundation.regular_files import folder_fault


def give_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the disk give errors, of which methods of paths say no in Python 3.14."""

    def fail(path: object = "", *_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    for name in ("stat", "lstat", "scandir", "listdir"):
        monkeypatch.setattr(os, name, fail)
    for name in ("exists", "is_dir", "is_file"):
        monkeypatch.setattr(Path, name, lambda path: False)
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter(()))


def lock(folder: Path) -> None:
    with only_one_in(folder, "wait"):
        pass


USERS: dict[str, Callable[[Path], object]] = {
    "an output's record": lambda path: record_problem(path, Record("x", 1, 1, None, 0)),
    "a name for an output": is_taken,
    "a name for a file": lambda path: require_same_kind(path, "--output", "a picture", lambda head: True),
    "finished parts": journalled_parts,
    "a lock": lock,
    "the commit": commit_of,
    "a missing folder": folder_fault,
    "a dataset": IndexedDataset,
    "a corpus": lambda path: require_files([path]),
    "an initial checkpoint": fp32_weights_prefix,
    "any checkpoint": open_checkpoint,
    "weights": safetensors_arrays,
    "published sums": listed_sum,
    "sums": lambda path: compare_lists(path, {}),
}


@pytest.mark.parametrize("question", [is_there, file_is_there, folder_is_there, name_is_taken, entries_in])
def test_only_a_missing_file_is_none(
    question: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert question(tmp_path) or question is file_is_there
    assert bool(question(tmp_path / "link")) == (question is name_is_taken)
    for missing in ("missing", "file/below", "a\0b"):
        assert not question(tmp_path / missing)
    give_errors(monkeypatch)
    with pytest.raises(OSError, match="Input/output error"):
        question(tmp_path)


@pytest.mark.parametrize("user", USERS)
def test_an_error_is_no_evidence(user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_errors(monkeypatch)
    with pytest.raises(OSError, match="Input/output error"):
        USERS[user](tmp_path / "x")
