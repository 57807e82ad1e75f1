"""A user's files for one random case: good copies of prepared ones, some damaged, some on a server that fails."""

import hashlib
import json
import os
import random
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.foundation.network.faulty_server import Fault, FaultyServer

ODD_NAMES = ["", "", "", "b c", "\u00e4", "back\\slash", "n\nl", "\udcfe", "%s", "-x", "'\"", "a" * 180]
"""What folders of copies are called, after a number."""
HOSTILE_JSON: list[Any] = [
    *(-1, 0, 1.5, 10**11, (1 << 63) - 1, 1 << 63, 10**30, float("nan"), float("inf"), True, None),
    *("", "x", "\0", "../../x", "/etc/passwd", "\ud800", "a" * 5000, [], [[]], {}, [1 << 40] * 40, ["a"]),
]
SHAPED = ("cut", "flip", "zeros", "empty", "more", "head", "twice")
"""Damage that leaves a file."""
REPLACED = ("folder", "pipe", "loop", "dangling", "gone", "device", "endless", "sparse")
KEEPS_SIZE = ("flip", "zeros", "head")
"""What nothing but a sum finds where a file holds bare values."""


class UserFiles:
    """The folder of a case."""

    def __init__(self, path: Path, sources: Path, draw: random.Random) -> None:
        self.path, self._sources, self._draw = path, sources, draw
        self.taken: list[tuple[Path, Path]] = []
        """What was copied, and to where."""
        self.damaged: list[tuple[Path, str]] = []
        path.mkdir()

    def take(self, pattern: str, *, spoil: float = 0.4, odd: bool = True) -> Path:
        """A copy of one of the prepared files or folders, with what belongs to it: of a dataset both files, of a
        stage's output the manifest and list. Perhaps damaged, in a folder of its own, perhaps
        of an odd name; gives its path, of a dataset without the ending."""
        found = [path for path in self._sources.glob(pattern) if path.name == pattern or not _belongs(path)]
        chosen = self._draw.choice(sorted(found))
        stem = chosen.with_suffix("") if chosen.suffix == ".idx" else chosen
        endings = (".idx", ".bin", ".manifest.json") if stem != chosen else ("", ".manifest.json", ".md5")
        folder = self.path / f"{len(self.taken)}{self._draw.choice(ODD_NAMES) if odd else ''}"
        folder.mkdir()
        target = folder / stem.name
        copies = [(Path(f"{stem}{ending}"), Path(f"{target}{ending}")) for ending in endings]
        copies = [(source, copy) for source, copy in copies if source.exists()]
        for source, copy in copies:
            if source.is_dir():
                shutil.copytree(source, copy)
            else:
                shutil.copy2(source, copy)
        self.taken += copies
        if self._draw.random() < spoil:
            self._spoil_something([copy for _, copy in copies])
        return target

    def _spoil_something(self, paths: list[Path]) -> None:
        files = [file for path in paths for file in _files_of(path)]
        for _ in range(self._draw.choice([1, 1, 1, 2, 5])):
            chosen = self._draw.choice(files)
            whole = chosen not in [path for path, _ in self.damaged] and chosen.is_file()
            if whole and chosen.stat().st_size:
                self.damaged.append((chosen, self._spoil(chosen)))

    def _spoil(self, path: Path) -> str:
        content = path.read_bytes()
        if content[:1] in (b"{", b"[") and self._draw.random() < 0.6:
            path.write_bytes(self._hostile_json(content))
            return "json"
        kind = self._draw.choice([*SHAPED, *SHAPED, *REPLACED])
        if kind in SHAPED:
            path.write_bytes(self._shaped(kind, content))
            return kind
        path.unlink()
        makers: dict[str, Callable[[], object]] = {
            "folder": path.mkdir,
            "pipe": lambda: os.mkfifo(path),
            "loop": lambda: path.symlink_to(path.name),
            "dangling": lambda: path.symlink_to("nowhere"),
            "device": lambda: path.symlink_to("/dev/null"),
            "endless": lambda: path.symlink_to("/dev/zero"),
            "sparse": lambda: _make_sparse(path),
        }
        makers.get(kind, lambda: None)()
        return kind

    def _shaped(self, kind: str, content: bytes) -> bytes:
        place = self._draw.randrange(len(content))
        if kind == "flip":
            changed = bytearray(content)
            for _ in range(self._draw.randrange(1, 9)):
                changed[self._draw.randrange(len(content))] ^= 1 << self._draw.randrange(8)
            return bytes(changed)
        return {
            "cut": content[:place],
            "zeros": content[:place] + bytes(len(content) - place),
            "empty": b"",
            "more": content + content[:place],
            "twice": content * 2,
            "head": (self._draw.randbytes(40) + content[40:])[: len(content)],
        }[kind]

    def _hostile_json(self, content: bytes) -> bytes:
        """One value of it replaced, or nested deeper than anybody reads."""
        try:
            fields = json.loads(content)
        except ValueError:
            return b"[" * 100_000
        if self._draw.random() < 0.1:
            return self._draw.choice([b"[" * 100_000, b'{"a":' * 100_000, b"null", b'"', b"1e999999", b"9" * 5000])
        places = list(_places(fields))
        holder, key = self._draw.choice(places) if places else ([fields], 0)
        if self._draw.random() < 0.15:
            del holder[key]
        else:
            holder[key] = self._draw.choice(HOSTILE_JSON)
        return json.dumps(fields).encode("utf-8", "surrogatepass")

    def state(self) -> dict[str, str]:
        """What each thing is, and the digest of its content."""
        return self.state_of(self.path)

    @staticmethod
    def state_of(folder: Path) -> dict[str, str]:
        """The same of all in a folder."""
        found = {}
        for path in sorted(folder.rglob("*")):
            kind = "link" if path.is_symlink() else "file" if path.is_file() else "folder" if path.is_dir() else "other"
            small = kind == "file" and path.stat().st_size < 1 << 30
            found[str(path)] = kind + (hashlib.md5(path.read_bytes()).hexdigest() if small else "")
        return found


def _belongs(path: Path) -> bool:
    """Whether it lies beside a prepared folder or file as its manifest or list."""
    endings = [ending for ending in (".manifest.json", ".md5") if path.name.endswith(ending)]
    return any(Path(str(path).removesuffix(ending)).exists() for ending in endings) or ".model.manifest" in path.name


def _make_sparse(path: Path) -> None:
    """1.5 GB of nothing: more memory than may be taken, and its sum is done in seconds."""
    path.touch()
    os.truncate(path, 1_500_000_000)


def _files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _places(fields: Any) -> "list[tuple[Any, Any]]":
    """Each value that can be replaced, as its holder and key."""
    found: list[tuple[Any, Any]] = []
    items = fields.items() if isinstance(fields, dict) else enumerate(fields) if isinstance(fields, list) else ()
    for key, value in items:
        found.append((fields, key))
        found += _places(value)
    return found


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
