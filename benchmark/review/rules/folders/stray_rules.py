"""Runs that lie where nobody counts them, and code that is none (docs/facts/mlperf_review.md 4.2, 7.9, 7.12)."""

import bz2
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmark.results.mllog import TOKEN
from benchmark.results.subjects import BENCHMARK, SubmissionPackage
from benchmark.review.findings import Deviation
from benchmark.review.rules.naming_rules import placeholder
from stage.regular_files import read_regular

MOST_READ = 8 << 20
"""Of a file; a published log has at most 5 MB."""
MOST_READ_IN_ALL = 256 << 20
MOST_UNPACKED = 1 << 20
MOST_MEMBERS = 64
"""Of an archive; each is read as far as MOST_UNPACKED."""
ZIP = b"PK\x03\x04"
RUN_RECORD = b'"run_start"'
A_RECORD = TOKEN.encode() + b"{"
FEWEST_RECORDS = 20
"""Of a log; code and papers may quote a few."""
SHORT_TEXT = 200
"""Characters of instructions that are a mere mark."""
FIRST = "README.md"
RUN_SCRIPT = "run_and_time.sh"
UNPACKERS: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lzma.LZMADecompressor),
)
"""By the first bytes of what they unpack."""


def packed_runs(package: SubmissionPackage) -> Iterator[Deviation]:
    """A run among the results that was compressed, so that no tool reads it."""
    for entry in package.entries:
        inside = entry.path.relative_to(package.path).parts[0] == "results"
        if inside and entry.kind == "file" and any(_holds_run(one) for one in _unpacked(_content(entry.path))):
            mend = "submit three runs by the order you announced, and keep the others for reviewers who ask"
            found = f"a compressed run in {entry.path.name}"
            yield Deviation(entry.path, None, found, "no run but the three that count", mend)


def stray_runs(package: SubmissionPackage) -> Iterator[Deviation]:
    """Runs outside results/: chosen from, or somebody else's."""
    left = MOST_READ_IN_ALL
    for entry in package.entries:
        outside = entry.path.relative_to(package.path).parts[0] != "results"
        if not outside or entry.kind != "file" or not 0 < entry.size <= min(MOST_READ, left):
            continue
        left -= entry.size
        content = _content(entry.path)
        if any(one.count(A_RECORD) >= FEWEST_RECORDS and _holds_run(one) for one in _readings(content)):
            mend = "say what it is: of all runs that were made, three are submitted, by an order announced before"
            yield Deviation(entry.path, None, f"a run in {entry.path.name}", "runs in results/ only", mend)


def _readings(content: bytes) -> Iterator[bytes]:
    """A file as it is, in UTF-16, with its quotes escaped as in a notebook, and what it holds compressed."""
    yield content
    if b"\x00" in content[:1000]:
        yield content.replace(b"\x00", b"")
    if b'\\"' in content:
        yield content.replace(b'\\"', b'"')
    yield from _unpacked(content)


def empty_code(package: SubmissionPackage) -> Iterator[Deviation]:
    """Instructions and scripts that say nothing."""
    for entry in package.entries:
        parts = entry.path.relative_to(package.path).parts
        if entry.kind != "file" or parts[:2] != ("benchmarks", BENCHMARK) or parts[-1] not in (FIRST, RUN_SCRIPT):
            continue
        text = _text(entry.path)
        if text is not None and not text.strip():
            yield Deviation(entry.path, None, f"an empty {entry.path.name}", "what makes the results", "write it")
        elif text is not None and len(text) < SHORT_TEXT and placeholder(text):
            found = f"{entry.path.name} {' '.join(text.split())!r:.60}"
            yield Deviation(entry.path, 1, found, "how to make the results again", "write it")


def _holds_run(content: bytes) -> bool:
    return TOKEN.strip().encode() in content and RUN_RECORD in content


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_READ)
    except OSError:
        return b""


def _unpacked(content: bytes) -> Iterator[bytes]:
    """The beginnings of what a compressed file holds; nothing of another one."""
    try:
        if content.startswith(ZIP):
            yield from _members(content)
        for first, make in UNPACKERS:
            if content.startswith(first):
                yield bytes(make().decompress(content, MOST_UNPACKED))
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return


def _members(content: bytes) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist()[:MOST_MEMBERS]:
                with archive.open(entry) as member:
                    yield member.read(MOST_UNPACKED)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError):  # damaged, encrypted, of another kind
        return


def _text(path: Path) -> str | None:
    try:
        return read_regular(path, MOST_READ).decode("utf-8", "replace")
    except OSError:
        return None
