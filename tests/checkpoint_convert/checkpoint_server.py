"""A web server, and S3 server as far as reading goes, of the files below a folder."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import unquote

Fault = Callable[[str, int], bool]
"""Whether the request number N, counted from 1, for the content of a file is answered with 503."""


class CheckpointServer:
    """Serves ``folder`` under /ckpt/, which is the bucket for S3. ``tags``: it sends ETags."""

    def __init__(self, folder: Path, *, tags: bool = True, fault: Fault = lambda key, number: False) -> None:
        self.folder, self.tags, self.fault = folder, tags, fault
        self.gets: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(server: CheckpointServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or the second of two small packets waits for 40 ms

        def do_HEAD(self) -> None:
            self._serve(with_content=False)

        def do_GET(self) -> None:
            self._serve(with_content=True)

        def _serve(self, *, with_content: bool) -> None:
            key = unquote(self.path.partition("?")[0]).removeprefix("/ckpt/")
            server.gets[key] += with_content
            file, status, content = server.folder / key, 404, b""
            if with_content and server.fault(key, server.gets[key]):
                status = 503
            elif file.is_file():
                status, content = 200, file.read_bytes()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if server.tags and status == 200:
                self.send_header("ETag", f'"{hashlib.md5(content).hexdigest()}"')
            self.end_headers()
            if with_content:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
