"""``evidence.jsonl`` as a run writes it, on rank 0: begun, continued where the checkpoint was, ended."""

import hashlib
from pathlib import Path

from benchmark.events.background_sink import Background
from benchmark.events.event import Event
from benchmark.events.line_files import LineFile
from benchmark.evidence.chain_links import EVIDENCE, NOTHING, Chain, encode_link, read_chain
from benchmark.evidence.link_contents import Content, Dropped
from stage.errors import InputError


class EvidenceLog:
    """The chain of a run. Written in a thread of its own: neither an error nor a slow disk reaches training."""

    def __init__(self, folder: Path, resumed_head: str | None) -> None:
        """Continue the chain behind the link with the digest ``resumed_head``; None: begin a new one.

        What is cut off is counted in :attr:`dropped`; a file without that link is set aside.
        """
        path = folder / EVIDENCE
        kept, self.dropped, self.is_new = _cut_point(path, resumed_head)
        self.head = NOTHING if resumed_head is None else resumed_head or NOTHING
        """Digest of the last link."""
        self._file = _LinkFile(path, kept)
        self._background = Background(self._file)

    def add(self, content: Content) -> None:
        """Append a link; returns at once."""
        line, self.head = encode_link(content, self.head)
        self._background.write(Event("link", "POINT_IN_TIME", line, {}, 0, "", 0, mlperf=False))

    def close(self) -> None:
        self._background.close()


def _cut_point(path: Path, resumed_head: str | None) -> tuple[int, Dropped | None, bool]:
    """Bytes of the file to keep, what is dropped, and whether the chain has to begin anew."""
    if not path.exists():
        return 0, None, True
    try:
        chain = read_chain(path)
    except InputError:
        chain = Chain(path, (), "not read", torn=False)
    place = next((number for number, link in enumerate(chain.links) if link.digest == resumed_head), None)
    if place is not None:
        behind = len(chain.links) - place - 1
        return chain.links[place].end, Dropped(behind, chain.head) if behind else None, False
    if resumed_head is None and chain.problem is None:  # killed before its first checkpoint
        return 0, Dropped(len(chain.links), chain.head) if chain.links else None, True
    _set_aside(path)
    return 0, None, True


def _set_aside(path: Path) -> None:
    """What a run finds and cannot continue is never deleted."""
    number = 1
    while (aside := path.with_name(f"{path.name}.set_aside_{number}")).exists():
        number += 1
    path.rename(aside)


class _LinkFile:
    """A sink of lines (``Sink``)."""

    name = EVIDENCE

    def __init__(self, path: Path, kept: int) -> None:
        self._file = LineFile(path)
        self._file.cut(kept)

    def write(self, event: Event) -> None:
        self._file.write(event.value)

    def close(self) -> None:
        self._file.close()


def sha256_of(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
