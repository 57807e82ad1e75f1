"""Folders that cannot be read are not empty ones."""

import os
from pathlib import Path

import pytest

from stage.folders import walked
from stage.manifest import record_of
from stage.publish import sync_folder


def test_all_files_of_all_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("1", "a/2", "a/b/3"):
        (tmp_path / name).touch()
    found = {os.path.join(folder, name) for folder, names in walked(tmp_path) for name in names}
    assert found == {str(tmp_path / name) for name in ("1", "a/2", "a/b/3")}
    assert list(walked(tmp_path / "none")) == []


def test_one_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    real = os.scandir

    def failing(path: str) -> object:
        if str(path).endswith("/a"):
            raise OSError(5, "Input/output error", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", failing)
    for go_through in (lambda path: list(walked(path)), lambda path: record_of(path, "x", None), sync_folder):
        with pytest.raises(OSError, match="/a'"):
            go_through(tmp_path)
