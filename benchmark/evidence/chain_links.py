"""``evidence.jsonl``: links as lines of JSON, each with the SHA-256 of itself, which covers that of the link before.

A line ends in its own digest, ``,"digest":"…"}``, taken of all bytes before it: nothing has to be written anew to check
it. What is read may be a stranger's: lines and files are bounded, every field has its type, nothing is executed.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from benchmark.config.typed_json import dataclass_from_json, float_as_json
from benchmark.evidence.link_contents import KINDS, BeginLink, Content, EndLink, ResumeLink, StepLink
from stage.errors import InputError

EVIDENCE = "evidence.jsonl"
"""Beside the run's result_N.txt."""
NOTHING = "0" * 64
"""Stands for the digest before the first link."""
ENDING = re.compile(rb',"digest":"([0-9a-f]{64})"}\n?')
ENDING_BYTES = len(f',"digest":"{NOTHING}"}}')
MOST_BYTES = 1 << 30
"""A step of 175B takes 19 kB: 50,000 of them."""
MOST_LINE_BYTES = 1 << 24
"""One with 500,000 tensors."""
KIND_OF = {made: name for name, made in KINDS.items()}
Wanted = TypeVar("Wanted", bound=Content)


@dataclass(frozen=True)
class Link:
    """One line."""

    line: int
    """Counted from 1."""
    end: int
    """Bytes of the file up to and with this line."""
    digest: str
    previous: str
    """Digest of the link before."""
    content: Content


@dataclass(frozen=True)
class Chain:
    """The links of a file, up to the first that does not hold."""

    path: Path
    links: tuple[Link, ...]
    problem: str | None
    """What is wrong with the line behind the last link, if it is not only torn."""
    torn: bool
    """The last line is not whole, as a killed run leaves it."""

    @property
    def head(self) -> str:
        """Digest of the last link."""
        return self.links[-1].digest if self.links else NOTHING

    @cached_property
    def begin(self) -> BeginLink | None:
        """The first link, if it is the beginning."""
        first = self.links[0].content if self.links else None
        return first if isinstance(first, BeginLink) else None

    def of(self, kind: type[Wanted]) -> list[Wanted]:
        return [link.content for link in self.links if isinstance(link.content, kind)]

    @cached_property
    def steps(self) -> dict[int, StepLink]:
        """By step; of one that was done twice the later, which counts."""
        return {link.step: link for link in self.of(StepLink)}

    @property
    def end(self) -> EndLink | None:
        """The last link, if it is the end of the run."""
        last = self.links[-1].content if self.links else None
        return last if isinstance(last, EndLink) else None

    def started_with(self, step: int) -> BeginLink | ResumeLink | None:
        """What the process that did a step had started with."""
        found: BeginLink | ResumeLink | None = None
        for link in self.links:
            if isinstance(link.content, BeginLink | ResumeLink):
                found = link.content
            elif isinstance(link.content, StepLink) and link.content.step == step:
                return found
        return None


def encode_link(content: Content, previous: str) -> tuple[bytes, str]:
    """The line of a link, without its end of line, and its digest."""
    fields = {"kind": KIND_OF[type(content)], "previous": previous, **numbers_as_json(asdict(content))}
    body = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()[:-1]
    digest = hashlib.sha256(body).hexdigest()
    return body + f',"digest":"{digest}"}}'.encode(), digest


def read_chain(path: Path, most_bytes: int = MOST_BYTES) -> Chain:
    """The chain in a file. Raises InputError where there is none, or it is larger than ``most_bytes``."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; a run writes it with train --evidence")
    if path.stat().st_size > most_bytes:
        raise InputError(f"{path}: {path.stat().st_size:,} bytes, expected at most {most_bytes:,}; it is no run's")
    links: list[Link] = []
    problem, torn = None, False
    for number, line, end in _lines(path):
        try:
            links.append(_link(number, line, end, links[-1].digest if links else NOTHING))
        except InputError as error:
            torn = not line.endswith(b"\n") and len(line) < MOST_LINE_BYTES
            problem = None if torn else f"line {number}: {error}"
            break
    return Chain(path, tuple(links), problem, torn)


def _lines(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """Number, bytes and end of each line; of one that is too long a part, and then nothing more."""
    end = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_LINE_BYTES), b""), 1):
            end += len(line)
            yield number, line, end


def _link(number: int, line: bytes, end: int, previous: str) -> Link:
    """Raises InputError where the line is no link, is not what was written, or follows another one."""
    if len(line) >= MOST_LINE_BYTES:
        raise InputError(f"longer than {MOST_LINE_BYTES:,} bytes")
    body = line.removesuffix(b"\n")[:-ENDING_BYTES]
    ending = ENDING.fullmatch(line, len(body))
    if ending is None or not line.endswith(b"\n"):
        raise InputError("no link of a chain: it does not end in its digest")
    digest = ending[1].decode()
    if hashlib.sha256(body).hexdigest() != digest:
        raise InputError("changed since it was written: its digest is another")
    try:
        fields: Any = json.loads(body + b"}")
    except (ValueError, RecursionError):
        raise InputError("not JSON") from None
    kind = fields.pop("kind", None) if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"kind {kind!r:.40}: expected one of {', '.join(KINDS)}")
    before = fields.pop("previous", None)
    # A chain that begins later than at step 0 continues one whose file is lost.
    if before != previous and not (number == 1 and kind == "begin" and isinstance(before, str)):
        raise InputError("follows another link than the one before it: links were left out, put in or moved")
    return Link(number, end, digest, before, dataclass_from_json(KINDS[kind], fields, kind))


def numbers_as_json(value: Any) -> Any:
    """A JSON value with numbers that JSON does not have as text."""
    if isinstance(value, dict):
        return {name: numbers_as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [numbers_as_json(one) for one in value]
    return float_as_json(value) if isinstance(value, float) else value
