"""A Hugging Face hub on this machine, with the few answers that huggingface_hub needs to fetch files."""

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from data_prep.preparation.artifacts import train_shard
from tests.support import forked_command

COMMITS = {"main": "a" * 40, "older": "b" * 40}
NAMES = [train_shard(number) for number in (768, 769, 770)]
FILES = {name: gzip.compress(f'{{"text": "tree {name}"}}\n'.encode(), mtime=0) for name in NAMES}


class FakeHub(ThreadingHTTPServer):
    """Serves ``files`` of the dataset allenai/c4, the same ones at each of ``COMMITS``."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.announced = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        """SHA-256 by name; a test may make it wrong."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def downloads(self) -> list[str]:
        """Name of each file that was asked for."""
        return sorted(
            path.split("/", 6)[6] for method, path in self.requests if method == "GET" and "/resolve/" in path
        )


@contextmanager
def fake_hub(files: dict[str, bytes]) -> Iterator[FakeHub]:
    with FakeHub(files) as hub:
        thread = threading.Thread(target=lambda: hub.serve_forever(poll_interval=0.01), daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()


def fetched(output: Path, *more: object) -> Any:
    """The three files of ``NAMES``, fetched in a process of its own: huggingface_hub reads its variables once."""
    return forked_command("data_prep", "fetch", "--output", output, "--what", "train", "--shards", "768-770", *more)


def all_files(output: Path) -> list[str]:
    """Names of what fetch has left in its folder, the manifests aside."""
    names = (str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.endswith(".manifest.json"))


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._file(head=True)

    def do_GET(self) -> None:
        start = "/api/datasets/allenai/c4/revision/"
        if not self.path.startswith(start):
            self._file(head=False)
        elif commit := {**COMMITS, **dict(zip(COMMITS.values(), COMMITS.values(), strict=True))}.get(
            self.path.removeprefix(start).split("?")[0]
        ):
            self._note()
            self._json({"id": "allenai/c4", "sha": commit, "siblings": [], "tags": [], "private": False})
        else:
            self._refuse("RevisionNotFound")

    def do_POST(self) -> None:
        self._note()
        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        hub = self.server
        entries = []
        for name in body["paths"]:
            if name in hub.files:
                size = len(hub.files[name])
                lfs = {"oid": hub.announced[name], "size": size, "pointerSize": 134}
                entries.append({"type": "file", "path": name, "size": size, "oid": "c" * 40, "lfs": lfs})
        self._json(entries)

    def _file(self, *, head: bool) -> None:
        self._note()
        hub = self.server
        parts = unquote(self.path).split("/", 6)  # "", datasets, allenai, c4, resolve, commit, name
        if len(parts) != 7 or parts[6] not in hub.files:
            self._refuse("EntryNotFound")
            return
        data = hub.files[parts[6]]
        self.send_response(200)
        self.send_header("X-Repo-Commit", parts[5])
        self.send_header("ETag", f'"{hub.announced[parts[6]]}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not head:
            self.wfile.write(data)

    def _note(self) -> None:
        self.server.requests.append((self.command, self.path))

    def _json(self, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()
