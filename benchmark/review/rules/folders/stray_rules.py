"""Runs that lie where nobody counts them, and code that is none (docs/facts/mlperf_review.md 4.2, 7.9, 7.12)."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmark.results.mllog import TOKEN
from benchmark.results.regular_files import read_regular
from benchmark.results.subjects import BENCHMARK, SubmissionPackage
from benchmark.review.findings import Deviation
from benchmark.review.rules.naming_rules import placeholder

MOST_READ = 8 << 20
"""Of a file; a published log has at most 5 MB."""
MOST_READ_IN_ALL = 256 << 20
MOST_UNPACKED = 1 << 20
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
        if inside and entry.kind == "file" and _holds_run(_unpacked(entry.path)):
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
        try:
            content = read_regular(entry.path, MOST_READ)
        except OSError:
            continue
        if content.count(A_RECORD) >= FEWEST_RECORDS and _holds_run(content):
            mend = "say what it is: of all runs that were made, three are submitted, by an order announced before"
            yield Deviation(entry.path, None, f"a run in {entry.path.name}", "runs in results/ only", mend)


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


def _unpacked(path: Path) -> bytes:
    """The beginning of what a compressed file holds; empty for another one."""
    try:
        content = read_regular(path, MOST_READ)
        unpack = next((make for first, make in UNPACKERS if content.startswith(first)), None)
        return b"" if unpack is None else bytes(unpack().decompress(content, MOST_UNPACKED))
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return b""


def _text(path: Path) -> str | None:
    try:
        return read_regular(path, MOST_READ).decode("utf-8", "replace")
    except OSError:
        return None
