"""A web server, and S3 server as far as reading goes, whose answers can be made to fail."""

import contextlib
import hashlib
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

Fault = Callable[[str, int], str | None]
"""What goes wrong with the so-manieth request for a key, counted from 1."""


class FaultyServer:
    """Serves the files below ``folder`` under ``/ckpt/``; with ``tags`` it sends ETags."""

    def __init__(self, folder: Path, *, tags: bool = True, fault: Fault = lambda key, number: None) -> None:
        self.folder, self.tags, self.fault = folder, tags, fault
        self.requests: Counter[str] = Counter()
        self.queries: set[str] = set()
        self.authorizations: set[str | None] = set()
        self.headers: list[dict[str, str]] = []
        """The headers of each request."""
        self.head_status: int | None = None
        """The status of all answers to HEAD, if it is always the same."""
        self.missing_status = 404
        """The status for objects that do not exist; some stores answer 403."""
        self.accepted = 0
        """Number of connections."""
        self.connections: set[socket.socket] = set()
        """That clients hold open."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    def use_tls(self, context: ssl.SSLContext) -> None:
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in tuple(self.connections):  # or its thread waits for a next request for ever
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def count(self, key: str) -> int:
        with self._lock:
            self.requests[key] += 1
            return self.requests[key]


def _handler(server: FaultyServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or the second of two small packets waits for 40 ms

        def setup(self) -> None:
            super().setup()
            server.connections.add(self.connection)
            server.accepted += 1

        def finish(self) -> None:
            server.connections.discard(self.connection)
            super().finish()

        def do_HEAD(self) -> None:
            server.headers.append(dict(self.headers))
            if server.head_status is not None:
                self._answer(server.head_status, b"")
                return
            file = server.folder / unquote(self.path.partition("?")[0]).removeprefix("/ckpt/")
            if not file.is_file():  # of the bucket: where S3 asks for its region
                self._answer(200 if file.is_dir() else server.missing_status, b"", {"x-amz-bucket-region": "us-east-1"})
                return
            content = file.read_bytes()
            tag = {"ETag": f'"{hashlib.md5(content).hexdigest()}"'} if server.tags else {}
            self._answer(200, b"", {**tag, "Content-Length": str(len(content))})

        def do_GET(self) -> None:
            server.headers.append(dict(self.headers))
            path, _, query = self.path.partition("?")
            path = re.sub(r"http://[^/]*", "", path)  # a proxy is asked for whole addresses
            server.queries.add(query)
            server.authorizations.add(self.headers.get("Authorization"))
            key = unquote(path).removeprefix("/ckpt/")
            fault = server.fault(key, server.count(key))
            file = server.folder / key
            if fault == "unavailable":
                self._answer(503, b"<Error><Code>SlowDown</Code></Error>")
            elif fault == "denied":
                self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            elif fault == "dropped":
                self._drop()
            elif fault is not None and fault.startswith("to "):
                self._answer(302, b"", {"Location": fault.removeprefix("to ")})
            elif not file.is_file():
                self._answer(server.missing_status, b"<Error><Code>NoSuchKey</Code></Error>")
            else:
                self._send(file.read_bytes(), fault)

        def _send(self, content: bytes, fault: str | None) -> None:
            tag = f'"{hashlib.md5(content).hexdigest()}"'
            headers = {"ETag": tag} if server.tags else {}
            status = 200
            asked = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", self.headers.get("Range", ""))
            if asked and fault != "without_ranges":
                status, total = 206, len(content)
                first, last = int(asked[1]), min(int(asked[2] or total), total - 1)
                if first >= total:
                    self._answer(416, b"", {**headers, "Content-Range": f"bytes */{total}"})
                    return
                content = content[first : last + 1]
                first += fault == "other_range"
                if fault != "part_unsaid":
                    headers["Content-Range"] = f"bytes {first}-{last}/{total}"
            if fault == "slow":
                time.sleep(0.3)
            if fault == "cut":  # a proxy that closes, and says that this was all
                content = content[: len(content) // 2]
            if fault == "truncated":
                half = content[: len(content) // 2]
                self._answer(status, half, {**headers, "Content-Length": str(len(content))})
                self._drop()
                return
            self._answer(status, content, headers)

        def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _drop(self) -> None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
