"""Reading objects from a server that fails in every way we know."""

import json
from pathlib import Path

import pytest

from stage.errors import InputError
from stage.remote import object_folder, patience
from stage.remote.object_address import parse_address
from stage.remote.object_folder import ObjectFolder
from tests.stage.remote.faulty_server import FaultyServer

CONTENT = b"0123456789" * 100


@pytest.fixture(params=["http", "s3"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setattr(object_folder, "RETRIES_WITHIN", {"max_retries": 0, "initial_delay": "1ms", "max_delay": "1ms"})
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files" / "run").mkdir(parents=True)
    (tmp_path / "files" / "run" / "a").write_bytes(CONTENT)
    return tmp_path / "files"


def opened(server: FaultyServer, kind: str, records: Path, pauses: list[float] | None = None) -> ObjectFolder:
    s3, web = ("s3://ckpt/run", server.url), (f"{server.url}/ckpt/run?token=SECRET", None)
    sleep = (pauses if pauses is not None else []).append
    return ObjectFolder(parse_address(*(s3 if kind == "s3" else web)), records, readers=2, sleep=sleep)


@pytest.mark.parametrize("fault", ["unavailable", "dropped", "truncated", "slow"])
def test_it_is_tried_again(fault: str, kind: str, files: Path, tmp_path: Path) -> None:
    pauses: list[float] = []
    with FaultyServer(files, fault=lambda key, number: fault if number < 3 else None) as server:
        assert opened(server, kind, tmp_path / "records", pauses).read("a", bytes) == CONTENT
        assert server.requests["run/a"] == (1 if fault == "slow" else 3)
    assert (len(pauses) > 0) == (fault != "slow")  # at once, too, where an old connection was found to be dead
    assert all(0 < pause <= 2 for pause in pauses)
    assert [json.loads(line)["bytes"] for line in (tmp_path / "records").read_text().splitlines()] == [len(CONTENT)]


@pytest.mark.parametrize(("fault", "tries"), [("unavailable", patience.TRIES), ("denied", 1)])
def test_in_the_end_it_is_given_up(fault: str, tries: int, kind: str, files: Path, tmp_path: Path) -> None:
    with FaultyServer(files, fault=lambda key, number: fault) as server:
        with pytest.raises(InputError, match=r"run/a: cannot be read.*it goes on from here") as error:
            opened(server, kind, tmp_path / "records").read("a", bytes)
        assert server.requests["run/a"] == tries
    assert "SECRET" not in str(error.value)
    assert "\n" not in str(error.value)


def test_what_cannot_be_decoded_is_read_again_and_not_noted(kind: str, files: Path, tmp_path: Path) -> None:
    def whole(content: bytes) -> bytes:
        if len(content) < len(CONTENT):
            raise ValueError("short")
        return content

    with FaultyServer(files, fault=lambda key, number: "cut" if number < 3 else None) as server:
        assert opened(server, kind, tmp_path / "records").read("a", whole) == CONTENT
        server.fault = lambda key, number: "cut"
        with pytest.raises(InputError, match=r"a chunk cannot be read \(short\); it is damaged there"):
            opened(server, kind, tmp_path / "records").read("a", whole)


def test_what_is_not_there_is_none(kind: str, files: Path, tmp_path: Path) -> None:
    with FaultyServer(files) as server:
        objects = opened(server, kind, tmp_path / "records")
        assert objects.read("b", bytes) is None
        assert objects.read("a", bytes) == CONTENT
        (files / "run" / "a").unlink()
        with pytest.raises(InputError, match="run/a: gone since it was first read"):
            objects.read("a", bytes)


@pytest.mark.parametrize("again", [False, True], ids=["same_call", "next_call"])
def test_an_object_that_changes_is_noticed(again: bool, kind: str, files: Path, tmp_path: Path) -> None:
    with FaultyServer(files) as server:
        objects = opened(server, kind, tmp_path / "records")
        objects.read("a", bytes)
        sent = server.bytes_sent
        objects.require_unchanged()
        assert server.bytes_sent == sent  # nothing is moved to ask
        (files / "run" / "a").write_bytes(CONTENT[::-1])
        if again:
            objects = opened(server, kind, tmp_path / "records")
        with pytest.raises(InputError, match="run/a: changed while it was converted"):
            objects.require_unchanged()
        with pytest.raises(InputError, match=r"run/a: changed since it was first read; remove .*records"):
            objects.read("a", bytes)


def test_without_etags_an_object_is_known_by_its_content(files: Path, tmp_path: Path) -> None:
    with FaultyServer(files, tags=False) as server:
        objects = opened(server, "http", tmp_path / "records")
        assert objects.read("a", bytes) == objects.read("a", bytes) == CONTENT
        objects.require_unchanged()
        assert (objects.cannot_be_asked, server.queries) == (1, {"token=SECRET"})
        (files / "run" / "a").write_bytes(CONTENT[::-1])
        with pytest.raises(InputError, match="run/a: changed since it was first read"):
            opened(server, "http", tmp_path / "records").read("a", bytes)
    assert "SECRET" not in (tmp_path / "records").read_text()


def test_records_of_a_kill_and_of_something_else(files: Path, tmp_path: Path) -> None:
    with FaultyServer(files) as server:
        opened(server, "http", tmp_path / "records").read("a", bytes)
        with (tmp_path / "records").open("a") as file:
            file.write('{"key": "b", "by')
        assert opened(server, "http", tmp_path / "records").read("a", bytes) == CONTENT
        (tmp_path / "records").write_text("notes\n")
        with pytest.raises(InputError, match="not the records of a conversion"):
            opened(server, "http", tmp_path / "records")
