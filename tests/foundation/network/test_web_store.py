"""Web servers: credentials stay with the server that they are for, and redirects lead to no place inside."""

import base64
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.errors import InputError
from foundation.network.addresses import Address, parse_address
from foundation.network.remote_folder import RemoteFolder
from foundation.network.web_connection import Origin, is_inside
from tests.foundation.network.faulty_server import FaultyServer

CONTENT = bytes(range(256)) * 10_000
BASIC = f"Basic {base64.b64encode(b'user:pass:word').decode()}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultyServer]:
    (tmp_path / "a").write_bytes(CONTENT)
    with FaultyServer(tmp_path) as server:
        yield server


@pytest.fixture
def redirecting(server: FaultyServer, tmp_path: Path) -> Iterator[FaultyServer]:
    """Another server, which redirects to ``server``."""
    with FaultyServer(tmp_path, fault=lambda key, number: f"to {server.url}/ckpt/a?new=1") as redirecting:
        redirecting.head_status = 405
        yield redirecting


def folder_at(url: str) -> RemoteFolder:
    return RemoteFolder(parse_address(url), sleep=lambda seconds: None)


def with_user(url: str) -> str:
    return url.replace("//", "//user:pass%3Aword@")


def test_a_redirect_tells_the_next_server_nothing(server: FaultyServer, redirecting: FaultyServer) -> None:
    """A signed query and a user's password are for the first server alone."""
    assert folder_at(f"{with_user(redirecting.url)}/ckpt/a?sig=secret").read() == CONTENT
    assert [headers.get("Authorization") for headers in redirecting.headers] == [BASIC]
    assert server.queries == {"new=1"}
    for headers in server.headers:
        assert headers.keys().isdisjoint({"Referer", "Authorization", "Cookie"})
        assert "secret" not in str(headers)


def test_a_users_name_in_a_redirect_is_not_sent(server: FaultyServer, tmp_path: Path) -> None:
    def fault(key: str, number: int) -> str:
        return f"to {with_user(server.url)}/ckpt/a"

    with FaultyServer(tmp_path, fault=fault) as redirecting:
        assert folder_at(f"{redirecting.url}/ckpt/a").read() == CONTENT
    assert [headers.get("Authorization") for headers in server.headers] == [None]


def test_a_user_and_password_reach_the_server_of_the_address(server: FaultyServer) -> None:
    folder = folder_at(f"{with_user(server.url)}/ckpt")
    facts = folder.facts("a")
    assert facts is not None
    assert (facts.bytes, folder.read("a", expected=facts)) == (len(CONTENT), CONTENT)
    assert {headers.get("Authorization") for headers in server.headers} == {BASIC}


INSIDE = ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.9]", "0.0.0.0", "169.254.169.254", "[fe80::1]", "0x7f.9")


@pytest.mark.parametrize("host", INSIDE)
def test_a_redirect_from_outside_leads_nowhere_inside(
    host: str, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test's server counts as one outside."""
    waited: list[float] = []
    monkeypatch.setattr("foundation.network.web_store.is_inside", lambda origin: False)
    refusal = pytest.raises(InputError, match=r"tried 1 times \(it redirects to http://.*, which is not followed\)")
    target = f"http://{host}:{port_of(server)}/ckpt/a"
    with FaultyServer(server.folder, fault=lambda key, number: f"to {target}") as first, refusal:
        RemoteFolder(Address(f"{first.url}/ckpt/a"), sleep=waited.append).read()
    assert waited == []
    assert server.headers == []


def port_of(server: FaultyServer) -> int:
    return int(server.url.rpartition(":")[2])


def test_servers_inside() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "169.254.1.1", "::ffff:127.0.0.1", "0.0.0.0"):
        assert is_inside(Origin("http", host, 80)), host
    for host in ("10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1"):
        assert not is_inside(Origin("http", host, 80)), host


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/a", "gopher://127.0.0.1:70/a"])
def test_a_redirect_to_something_else_is_refused(target: str, server: FaultyServer) -> None:
    server.fault = lambda key, number: f"to {target}"
    with pytest.raises(InputError, match=r"tried 1 times .*not of a web server"):
        folder_at(f"{server.url}/ckpt/a").read()


def test_redirects_end(server: FaultyServer) -> None:
    server.fault = lambda key, number: f"to /ckpt/{number}"
    with pytest.raises(InputError, match=r"tried 1 times \(it redirects more than 10 times\)"):
        folder_at(f"{server.url}/ckpt/a").read()


def test_names_with_any_character(server: FaultyServer) -> None:
    for name in ("b c", "opt_states_0.p#96#i-1_2.count", "50%", "ä?", "a+b&c", "%41"):
        (server.folder / name).write_bytes(name.encode())
        folder = folder_at(f"{server.url}/ckpt")
        assert folder.read(name) == name.encode()
        facts = folder.facts(name)
        assert facts is not None
        assert facts.bytes == len(name.encode())
    assert folder_at(f"{server.url}/ckpt/b c").read() == b"b c"
    assert folder_at(f"{server.url}/ckpt/50%25").read() == b"50%"


@pytest.mark.parametrize("status", [403, 405, 501])
def test_a_server_that_answers_no_head(status: int, server: FaultyServer) -> None:
    server.head_status = status
    folder = folder_at(f"{server.url}/ckpt")
    facts = folder.facts("a")
    assert facts is not None
    assert facts.bytes == len(CONTENT)
    assert folder.facts("b") is None


def test_connections_are_used_again(server: FaultyServer) -> None:
    folder = folder_at(f"{server.url}/ckpt")
    for _ in range(5):
        assert folder.read("a") == CONTENT
        assert folder.facts("a") is not None
        assert folder.facts("b") is None
    assert server.accepted == 1
    for connection in tuple(server.connections):  # a server closes connections that are idle
        connection.shutdown(socket.SHUT_RDWR)
    assert folder.read("a") == CONTENT
    assert server.accepted == 2
    blocks = folder.stream("a")
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert folder.read("a") == CONTENT


def test_a_proxy_of_the_environment(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", with_user(server.url))
    monkeypatch.delenv("no_proxy", raising=False)
    assert folder_at("http://nowhere.invalid/ckpt/a").read() == CONTENT
    assert [(headers["Host"], headers["Proxy-Authorization"]) for headers in server.headers] == [
        ("nowhere.invalid:80", BASIC)
    ]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="a certificate is made by openssl")
def test_https(server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    words += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *words], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with FaultyServer(tmp_path) as secure:
        secure.use_tls(context)
        url = secure.url.replace("http://127.0.0.1", "https://localhost")
        from foundation.network import web_connection

        web_connection._tls.cache_clear()
        with pytest.raises(InputError, match=r"tried 1 times \(its certificate is not valid"):
            folder_at(f"{url}/ckpt/a").read()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        web_connection._tls.cache_clear()
        assert folder_at(f"{url}/ckpt/a").read() == CONTENT
        web_connection._tls.cache_clear()


def test_a_proxy_is_asked_for_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with contextlib.closing(connection):
                received.append(connection.recv(1000))
                connection.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setattr("foundation.network.remote_folder.TRIES", 1)
        with pytest.raises(InputError, match="Tunnel connection failed: 403 No"):
            folder_at("https://nowhere.invalid/a").read()
        thread.join()
    assert received[0].startswith(b"CONNECT nowhere.invalid:443 HTTP/1.")
