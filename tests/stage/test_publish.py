"""Files and folders appear whole or not at all."""

from pathlib import Path

import pytest

from stage.publish import partial_path, published_file, published_folder, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), published_file(path) as partial:
        partial.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    partial_path(path).mkdir()
    (partial_path(path) / "left by a killed attempt").touch()
    with pytest.raises(RuntimeError), published_folder(path) as partial:
        (partial / "a").touch()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with published_folder(path) as partial:
        (partial / "a").touch()
        assert not path.exists()
    assert [entry.name for entry in path.iterdir()] == ["a"]


def test_a_folder_replaces_an_older_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    for name in ("a", "b"):
        with published_folder(path) as partial:
            (partial / name).touch()
    assert [entry.name for entry in path.iterdir()] == ["b"]
    assert [entry.name for entry in path.parent.iterdir()] == ["folder"]
