"""Objects at an address: read whatever their server does, or refused in one line without secrets."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foundation.errors import InputError
from foundation.network.addresses import Address, parse_address
from foundation.network.remote_folder import RemoteFolder, facts_of_all
from tests.foundation.network.faulty_server import Fault, FaultyServer

CONTENT = bytes(range(256)) * 10_000


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "array").mkdir()
    (tmp_path / "array" / "0.0").write_bytes(CONTENT)
    return tmp_path


def first(*faults: str) -> Fault:
    """The first requests fail, one with each fault."""
    return lambda key, number: faults[number - 1] if number <= len(faults) else None


def remote(server: FaultyServer) -> RemoteFolder:
    return RemoteFolder(Address(f"{server.url}/ckpt"), sleep=lambda seconds: None)


@pytest.mark.parametrize(
    "faults",
    [("unavailable", "dropped"), ("truncated", "without_ranges"), ("truncated", "truncated", "unavailable")],
)
def test_whatever_breaks_is_gone_on_with(faults: tuple[str, ...], files: Path) -> None:
    with FaultyServer(files, fault=first(*faults)) as server:
        assert remote(server).read("array/0.0") == CONTENT


def test_a_redirect_is_followed_and_a_signed_query_reaches_the_server(files: Path) -> None:
    with FaultyServer(files) as there, FaultyServer(files, fault=lambda k, n: f"to {there.url}/ckpt/array/0.0") as here:
        assert RemoteFolder(parse_address(f"{here.url}/ckpt/array/0.0?sig=secret")).read() == CONTENT
        assert here.queries == {"sig=secret"}


def test_what_is_not_there(files: Path) -> None:
    with FaultyServer(files) as server:
        assert remote(server).read("array/0.1") is None
        with pytest.raises(InputError, match=r"/ckpt/array/0\.1: no such object"):
            list(remote(server).stream("array/0.1"))


@pytest.mark.parametrize(("fault", "tries"), [("denied", 1), ("unavailable", 5)])
def test_a_server_that_refuses_is_told_without_secrets(
    fault: str, tries: int, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waited: list[float] = []
    with FaultyServer(files, fault=lambda key, number: fault) as server:
        url = server.url.replace("//", "//user:hidden@") + "/ckpt/array/0.0?sig=secret"
        with pytest.raises(InputError, match=f"tried {tries} times") as error:
            RemoteFolder(parse_address(url), sleep=waited.append).read()
    assert waited == [2.0, 4.0, 8.0, 16.0][: tries - 1]
    said = str(error.value) + capsys.readouterr().err
    assert "secret" not in said
    assert "hidden" not in said
    assert said.count("trying again") == tries - 1


@pytest.mark.parametrize("tags", [True, False])
def test_an_object_that_changes_is_noticed(tags: bool, files: Path) -> None:
    with FaultyServer(files, tags=tags) as server:
        address = Address(f"{server.url}/ckpt/array/0.0")
        (facts,) = facts_of_all([address])
        assert facts.bytes == len(CONTENT)
        assert RemoteFolder(address).read(expected=facts) == CONTENT
        (files / "array" / "0.0").write_bytes(CONTENT[::-1] + (b"" if tags else b"more"))
        with pytest.raises(InputError, match="changed since it was first asked for"):
            RemoteFolder(address).read(expected=facts)


def test_a_rate_is_kept(files: Path) -> None:
    waited: list[float] = []
    with FaultyServer(files) as server:
        folder = RemoteFolder(Address(f"{server.url}/ckpt"), bytes_per_s=1e6, sleep=waited.append)
        assert b"".join(folder.stream("array/0.0")) == CONTENT
    assert sum(waited) >= len(CONTENT) / 1e6 * 0.9


@pytest.mark.parametrize(
    ("text", "endpoint", "told"),
    [
        ("ftp://host/a?secret", None, "expected a local path, gs://, s3://, http:// or https://"),
        ("http:///a?secret", None, "HOST/PATH behind it"),
        ("gs://user:secret@bucket/a", None, "HOST/PATH behind it"),
        ("http://host:port/secret", None, "HOST/PATH behind it"),
        ("gs://bucket/a", "http://host", "--endpoint-url: expected http"),
        ("s3://bucket/a", "host/secret", "--endpoint-url: expected http"),
    ],
)
def test_an_address_that_is_none(text: str, endpoint: str | None, told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        parse_address(text, endpoint)
    assert "secret" not in str(error.value)


def test_another_s3_server_with_and_without_credentials(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foundation.network.bucket_store.METADATA_SERVERS", {"s3": "127.0.0.1:1"})
    with FaultyServer(files) as server:
        address = parse_address("s3://ckpt/array", server.url)
        assert (str(address), address.below("0.0").name) == ("s3://ckpt/array", "0.0")
        assert RemoteFolder(address).read("0.0") == CONTENT
        assert server.authorizations == {None}
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        server.authorizations.clear()
        assert RemoteFolder(address).read("0.0") == CONTENT
        assert all(said is not None and "Credential=key" in said for said in server.authorizations)


def test_a_process_that_was_forked_too_late_is_told(files: Path) -> None:
    """obstore would wait for ever."""
    with FaultyServer(files) as server:
        remote(server).read("array/0.0")
        child = multiprocessing.get_context("fork").Process(target=_must_fail, args=(f"{server.url}/ckpt",))
        child.start()
        child.join(60)
        assert child.exitcode == 0


def _must_fail(url: str) -> None:
    with pytest.raises(RuntimeError, match="forked after its parent had read addresses"):
        RemoteFolder(Address(url))


def test_many_objects_that_fail_together_are_a_few_lines(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FaultyServer(files, fault=lambda key, number: "unavailable") as server:
        server.head_status = 503
        folder = remote(server)
        with ThreadPoolExecutor(16) as pool:
            for answer in [pool.submit(folder.facts, f"array/{number}") for number in range(16)]:
                with pytest.raises(InputError, match="tried 5 times"):
                    answer.result()
    assert capsys.readouterr().err.count("trying again") == 4


def test_credentials_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere")
    with pytest.raises(InputError, match=r"gs://bucket/a: .*nowhere.*; check the credentials"):
        RemoteFolder(parse_address("gs://bucket/a"))
