"""The process that reads a remote file for another one."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from data_prep.corpus.remote_input import ReaderEnded, RemoteBytes, describe_all
from stage.errors import InputError
from stage.remote.object_address import parse_address
from stage.remote.remote_file import RemoteFile
from tests.stage.remote.faulty_server import FaultyServer

CONTENT = bytes(range(256)) * 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(CONTENT)
    (tmp_path / "b").write_bytes(b"b")
    return tmp_path


def files(server: FaultyServer, *names: str) -> list[RemoteFile]:
    return [RemoteFile(parse_address(f"{server.url}/ckpt/{name}")) for name in names]


def test_it_reads_all(folder: Path) -> None:
    with FaultyServer(folder) as server:
        found = describe_all(files(server, "a", "b"))
        assert [file.facts.bytes for file in found] == [len(CONTENT), 1]
        with RemoteBytes(found[0]) as source:
            assert server.requests["a"] == 1  # nothing is asked before it is read
            assert source.read(10) == CONTENT[:10]
            assert source.readall() == CONTENT[10:]
            assert source.read(1) == b""
    assert describe_all([]) == []


def test_what_is_not_read_to_its_end_is_let_go(folder: Path) -> None:
    with FaultyServer(folder) as server:
        before = _children()
        source = RemoteBytes(describe_all(files(server, "a"))[0])
        source.read(1)
        assert len(_children() - before) == 1
        source.close()
        source.close()
        assert _children() == before


def test_its_errors_are_raised_where_it_is_read(folder: Path) -> None:
    with FaultyServer(folder, fault=lambda key, number: "denied") as server:
        with pytest.raises(InputError, match=r"ckpt/a: cannot be read \(status 403"):
            describe_all(files(server, "a"))
        with RemoteBytes(files(server, "b")[0]) as source, pytest.raises(InputError, match="ckpt/b: cannot be read"):
            source.read(1)


def test_its_bugs_are_told_with_their_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteFile, "described", lambda file: 1 // 0)
    with FaultyServer(folder) as server, pytest.raises(RuntimeError, match=r"(?s)reads from elsewhere.*ZeroDivision"):
        describe_all(files(server, "a"))


def test_a_reader_that_is_killed_is_no_end_of_the_file(folder: Path) -> None:
    with FaultyServer(folder) as server, RemoteBytes(describe_all(files(server, "a"))[0]) as source:
        before = _children()
        source.read(1)
        (reader,) = _children() - before
        os.kill(reader, signal.SIGKILL)
        with pytest.raises(ReaderEnded, match=r"ckpt/a: the process that reads it was killed; run the command again"):
            source.readall()


def _children() -> set[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            found |= set(map(int, (task / "children").read_text().split()))
    return found
