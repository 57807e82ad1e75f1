"""Only regular files are read, whatever lies about."""

import inspect
import os
import socket
import sys
from pathlib import Path

import pytest

from foundation.regular_files import UnfitFile, children, is_folder, is_regular, read_regular, walk


def test_content_of_a_file_and_of_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 5) == b"12345"
    with pytest.raises(UnfitFile, match="5 bytes, more than 4"):
        read_regular(tmp_path / "file", 4)


def test_what_blocks_never_ends_or_is_not_there_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has at most 107 bytes
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, error, words in (
            ("pipe", UnfitFile, "pipe, not a regular file"),
            ("zero", UnfitFile, "device, not a regular file"),
            ("loop", OSError, "Too many levels"),
            ("dangling", FileNotFoundError, "No such file"),
            (".", UnfitFile, "folder, not a regular file"),
            ("socket", UnfitFile, "socket, not a regular file"),
            ("x" * 300, OSError, "too long"),
        ):
            assert not is_regular(tmp_path / name)
            with pytest.raises(error, match=words):
                read_regular(tmp_path / name, 10)
    assert not is_regular(tmp_path / "a\0b")
    assert not is_folder(tmp_path / "loop")


def test_everything_below_a_folder_without_recursion(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"d" * 200)
    deep.mkdir(parents=True)
    (tmp_path / "loop").symlink_to(".")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        entries = list(walk(tmp_path))
    finally:
        sys.setrecursionlimit(limit)
    assert [entry.kind for entry in entries].count("folder") == 200
    assert [entry.kind for entry in entries if entry.path.name == "loop"] == ["link"]
    assert children(tmp_path / "nowhere") == []
    assert [entry.kind for entry in walk(tmp_path / "nowhere")] == ["unreadable"]
