"""A case's files on a server of this machine, by ``http://`` and ``s3://``, whose answers may fail."""

import os
import random
import zlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from tests.stage.faulty_server import Fault, FaultyServer

PASSING = ("unavailable", "dropped", "truncated", "other_range", "part_unsaid", "cut", "slow")
"""Of the first requests for an object; one that went on would be waited for, for a minute."""
LASTING = ("denied", "without_ranges")
FAILING = 8
"""One of so many objects: each that fails is waited for."""
LARGEST = 1 << 26
"""Bytes; nothing larger is sent."""
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "SECRET", "AWS_EC2_METADATA_DISABLED": "true"}


class ServedFiles:
    """One server for all cases; each has a folder of its own."""

    def __init__(self, server: FaultyServer) -> None:
        self._server = server
        self._paths: dict[str, Path] = {}
        os.environ.update(CREDENTIALS)

    def serve(self, folder: Path) -> None:
        """From now on, and nothing fails."""
        self._server.folder = folder
        self._server.requests.clear()
        self._server.fault = self._fault(None, 0)
        self._paths.clear()

    def fail_at_random(self, draw: random.Random) -> None:
        """From now on one kind of fault, of the first requests for each object or of all."""
        kind = draw.choice([*PASSING, *LASTING])
        self._server.fault = self._fault(kind, draw.choice([1, 2]) if kind in PASSING else 10**9)

    def address(self, path: Path, draw: random.Random) -> str:
        """Of a file or folder that is served."""
        name = quote(os.fsencode(path.relative_to(self._server.folder)))
        found = draw.choice([f"{self._server.url}/ckpt/{name}", f"s3://ckpt/{path.relative_to(self._server.folder)}"])
        self._paths[found] = path
        return found

    @property
    def endpoint(self) -> str:
        return self._server.url

    @property
    def paths(self) -> Mapping[str, Path]:
        """What lies at each address that was given out."""
        return self._paths

    def _fault(self, kind: str | None, requests: int) -> Fault:
        folder = self._server.folder

        def fault(key: str, number: int) -> str | None:
            file = folder / key
            if file.is_file() and file.stat().st_size > LARGEST:
                return "denied"
            failing = kind in LASTING or zlib.crc32(key.encode(errors="replace")) % FAILING == 0
            return kind if failing and number <= requests else None

        return fault
