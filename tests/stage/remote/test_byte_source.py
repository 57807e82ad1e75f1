"""Files read from servers that fail in every way we know: the bytes are the file's, or there is an error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stage.errors import InputError
from stage.remote import bucket_file, web_file
from stage.remote.object_address import parse_address
from stage.remote.patience import TRIES
from stage.remote.remote_file import RemoteFile
from tests.stage.remote.faulty_server import FaultyServer

CONTENT = b"".join(number.to_bytes(4, "little") for number in range(5000))


@pytest.fixture(params=["http", "s3"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setattr(bucket_file, "RETRIES_WITHIN", {"max_retries": 0, "initial_delay": "1ms", "max_delay": "1ms"})
    for module in (bucket_file, web_file):
        monkeypatch.setattr(module, "PIECE_BYTES", 1 << 12)
    return str(request.param)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "files" / "run").mkdir(parents=True)
    (tmp_path / "files" / "run" / "a b.json").write_bytes(CONTENT)
    return tmp_path / "files"


def remote(server: FaultyServer, kind: str = "http", name: str = "a b.json") -> RemoteFile:
    if kind == "s3":
        return RemoteFile(parse_address(f"s3://ckpt/run/{name}", server.url))
    return RemoteFile(parse_address(f"{server.url}/ckpt/run/{name}?token=SECRET"))


def content(file: RemoteFile) -> bytes:
    return b"".join(file.read(sleep=lambda _: None))


def test_all_of_it_with_its_facts(kind: str, files: Path) -> None:
    with FaultyServer(files) as server:
        file = remote(server, kind).described()
        assert file.facts.bytes == len(CONTENT)
        assert file.facts.version is not None
        assert content(file) == CONTENT
        for size in (0, 1, 2, 3, 1 << 12, (1 << 12) + 1):
            (files / "run" / "b").write_bytes(CONTENT[:size])
            described = remote(server, kind, "b").described()
            assert (described.facts.bytes, content(described)) == (size, CONTENT[:size])
    assert str(file).endswith("ckpt/run/a b.json")


@pytest.mark.parametrize("fault", ["unavailable", "dropped", "truncated", "cut", "other_range", "part_unsaid", "slow"])
def test_it_goes_on_where_it_broke_off(fault: str, kind: str, files: Path) -> None:
    with FaultyServer(files) as server:
        file = remote(server, kind).described()
        begun = server.requests["run/a b.json"]
        server.fault = lambda key, number: fault if number - begun in (1, 2, 4) else None
        assert content(file) == CONTENT


@pytest.mark.parametrize("fault", ["unavailable", "dropped", "other_range"])
def test_in_the_end_reading_is_given_up(fault: str, kind: str, files: Path) -> None:
    with FaultyServer(files) as server:
        file = remote(server, kind).described()
        begun = server.requests["run/a b.json"]
        server.fault = lambda key, number: (
            fault if number > begun + 1 or kind == "s3" or fault != "other_range" else None
        )
        if kind == "http" and fault == "other_range":
            server.fault = lambda key, number: "truncated" if number == begun + 1 else fault
        with pytest.raises(InputError, match=rf"cannot be read in {TRIES} tries .*it goes on from here") as error:
            content(file)
    assert "SECRET" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("fault", ["denied", "gone"])
def test_what_no_trying_mends(fault: str, kind: str, files: Path) -> None:
    with FaultyServer(files) as server:
        file = remote(server, kind).described()
        begun = server.requests["run/a b.json"]
        if fault == "gone":
            (files / "run" / "a b.json").unlink()
        else:
            server.fault = lambda key, number: "denied"
        for ask in (lambda: content(file), file.described):
            with pytest.raises(InputError, match=r"cannot be read|no such (file|object)") as error:
                ask()
            assert "SECRET" not in str(error.value)
        assert server.requests["run/a b.json"] <= begun + 3


def replaced(path: Path) -> None:
    path.write_bytes(CONTENT[::-1])


def shortened(path: Path) -> None:
    path.write_bytes(CONTENT[:5000])


def lengthened(path: Path) -> None:
    path.write_bytes(CONTENT * 2)


@pytest.mark.parametrize("change", [replaced, shortened, lengthened])
def test_a_file_that_changes_meanwhile(change: Callable[[Path], None], kind: str, files: Path) -> None:
    """S3 always sends ETags. Of a server that sends none the size alone tells."""
    for tags in (True,) if kind == "s3" or change is replaced else (True, False):
        (files / "run" / "a b.json").write_bytes(CONTENT)
        with FaultyServer(files, tags=tags) as server:
            file = remote(server, kind).described()
            assert file.described().facts == file.facts
            change(files / "run" / "a b.json")
            assert file.described().facts != file.facts
            with pytest.raises(InputError, match=r"changed while it was read .*run the command again"):
                content(file)


def test_a_rate_is_kept(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("stage.remote.remote_file.RateLimit", lambda rate: _Noting(rate, waited))
    with FaultyServer(files) as server:
        file = RemoteFile(parse_address(f"{server.url}/ckpt/run/a b.json"), bytes_per_s=1000.0).described()
        assert content(file) == CONTENT
    assert sum(waited) == len(CONTENT)


class _Noting:
    def __init__(self, rate: float, waited: list[float]) -> None:
        assert rate == 1000.0
        self.spend = waited.append
