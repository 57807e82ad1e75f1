"""Files on web servers: no ranges, dead connections, redirections."""

import socket
from pathlib import Path

import pytest

from stage.errors import InputError
from stage.remote import web_file
from stage.remote.object_address import parse_address
from stage.remote.patience import TRIES
from stage.remote.remote_file import RemoteFile
from tests.stage.remote.faulty_server import FaultyServer
from tests.stage.remote.test_byte_source import CONTENT, content, files, remote, replaced

__all__ = ["files"]


def test_a_server_that_knows_no_ranges_sends_all_again(files: Path) -> None:
    with FaultyServer(files, fault=lambda key, number: "without_ranges") as server:
        file = remote(server).described()
        server.fault = lambda key, number: "truncated" if number == 2 else "without_ranges"
        assert content(file) == CONTENT
        assert server.requests["run/a b.json"] == 3


def test_a_connection_without_life_is_given_up(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_file, "STALLED_S", 0.5)
    with FaultyServer(files) as server:
        file = remote(server).described()
        server.fault = lambda key, number: "stalled" if number == 2 else None
        assert content(file) == CONTENT


def test_changed_between_two_tries(files: Path) -> None:
    with FaultyServer(files) as server:
        file = remote(server).described()

        def fault(key: str, number: int) -> str | None:
            if number == 3:
                replaced(files / "run" / "a b.json")
            return "truncated" if number == 2 else None

        server.fault = fault
        with pytest.raises(InputError, match="changed while it was read"):
            content(file)


def test_redirections_are_followed_and_the_password_stays(files: Path) -> None:
    with FaultyServer(files) as storage, FaultyServer(files) as hub:
        hub.fault = lambda key, number: f"to {storage.url}/ckpt/run/a%20b.json?signature=SIGNED"
        plain = f"{hub.url}/ckpt/run/a b.json".replace("http://", "http://name:SECRET@")
        file = RemoteFile(parse_address(plain)).described()
        assert content(file) == CONTENT
        assert hub.authorizations == {"Basic bmFtZTpTRUNSRVQ="}
        assert storage.authorizations == {None}
        assert storage.queries == {"signature=SIGNED"}
    assert str(file) == f"{hub.url}/ckpt/run/a b.json"


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        file = RemoteFile(parse_address(f"http://127.0.0.1:{free.getsockname()[1]}/a"))
        with pytest.raises(InputError, match=f"cannot be read in {TRIES} tries .*refused"):
            content(file)
