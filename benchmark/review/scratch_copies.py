"""What the official tools are given: copies in a scratch folder, under names that crash none of them.

The package checker and the summarizer write into what they check, and several tools take some characters of a path for
a pattern. Each copy is told by the real path it stands for. What no tool could read in its time goes to them empty.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.results.mllog import BARE_TOKEN, MOST_BYTES, with_plain_newlines
from benchmark.results.subjects import BENCHMARK, ResultSet, SubmissionPackage, subfolders
from stage.regular_files import UnfitFile, children, is_folder, is_regular, read_regular

MOST_COPIED = 32 << 20
"""Bytes of a file's records; the largest published log has 5 MB."""
MOST_LINES = 500_000
"""Of a file: a tool takes some microseconds for each. The most of a published log are 34,398."""
MOST_LINE = 1 << 16
"""Characters of a line with a record: the tools' time grows with the square, some minutes for 900,000."""
MOST_COPIES = 2000
MOST_COPIED_TOGETHER = 1 << 30
"""Files and bytes of one package."""
MOST_NAME = 80
SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
OF_ROUND_4_0 = "4.0.0"
STATUSES_OF_ROUND_4_0 = {
    b"onprem": b"Available on-premise",
    b"cloud": b"Available cloud",
    b"available": b"Available cloud",
}
"""As accepted then, and as today's tools have them."""
STATUS = re.compile(rb'("status"\s*:\s*")(onprem|cloud|available)(?=")')


@dataclass
class ScratchCopies:
    """Copies of strangers' files, and what was replaced or left out on the way."""

    renamed: dict[str, str] = field(default_factory=dict)
    """Real path of each copy."""
    notes: list[str] = field(default_factory=list)
    left: int = MOST_COPIED_TOGETHER
    """Bytes that may still be copied."""

    def add(self, path: Path, target: Path) -> None:
        """Copy a file, or leave an empty one and note it: the tools then fail on it, as they should."""
        target.parent.mkdir(parents=True, exist_ok=True)
        content = b""
        try:
            content = read_regular(path, MOST_BYTES)
            if path.suffix == ".txt":  # a log: the tools look at nothing but its records
                content = records_of(content)
            _require_fit(content, min(MOST_COPIED, self.left))
        except OSError as error:
            content = b""
            why = str(error) if isinstance(error, UnfitFile) else error.strerror
            self.notes.append(f"{path.name!r} went to the tools empty: {why}")
        self.left -= len(content)
        target.write_bytes(content)
        self.renamed[str(target)] = str(path)

    def add_folder(self, source: Path, folder: Path, depth: int = 3) -> None:
        """Regular files and links to them; power logs lie two folders deeper."""
        folder.mkdir(parents=True, exist_ok=True)
        self.renamed[str(folder)] = str(source)
        for path in children(source):
            if len(self.renamed) > MOST_COPIES:
                self.notes.append(f"{source.name!r} went to the tools in part: more than {MOST_COPIES:,} files")
                return
            if is_regular(path):
                self.add(path, folder / safe_name(path.name))
            elif is_folder(path) and not path.is_symlink() and depth > 0:
                self.add_folder(path, folder / safe_name(path.name), depth - 1)


def records_of(content: bytes) -> bytes:
    """The lines with a record, without those of other programs."""
    token = BARE_TOKEN.encode()
    lines = (line + b"\n" for line in with_plain_newlines(content).split(b"\n") if token in line)
    return b"".join(lines)


def _require_fit(content: bytes, most: int) -> None:
    """Raises UnfitFile for what would keep a tool longer than it may take."""
    if len(content) > most:
        raise UnfitFile(f"{len(content):,} bytes, more than {most:,}")
    lines = content.count(b"\n") + content.count(b"\r")
    if lines > MOST_LINES:
        raise UnfitFile(f"{lines:,} lines, more than {MOST_LINES:,}")
    longest = max((len(line) for line in content.splitlines() if BARE_TOKEN.encode() in line), default=0)
    if longest > MOST_LINE:
        raise UnfitFile(f"a record's line of {longest:,} characters, more than {MOST_LINE:,}")


@dataclass(frozen=True)
class PackageCopy:
    """A package as the tools see it."""

    path: Path
    renamed: Mapping[str, str]
    """Real path of each copy."""
    notes: tuple[str, ...]
    """What of its names was replaced, and which files went empty."""


def copy_package(package: SubmissionPackage, scratch: Path) -> PackageCopy:
    """Copy systems/, and results/ of gpt3 and of folders no tool knows."""
    copies = ScratchCopies()

    def copy_as(path: Path, stand_in: str) -> str:
        if SAFE_NAME.fullmatch(path.name):
            return path.name
        copies.notes.append(f"{path.name!r} went to the tools as {stand_in}: they take its characters for a pattern")
        return stand_in

    root = scratch / copy_as(package.path, "SUBMITTER")
    copies.renamed[str(root)] = str(package.path)
    for name in ("systems", "results"):
        if is_folder(package.path / name):
            (root / name).mkdir(parents=True)
    for description in package.descriptions[:MOST_COPIES]:
        copies.add(description.path, root / "systems" / f"{safe_name(description.path.stem)}.json")
    if package.ruleset == OF_ROUND_4_0:
        _with_statuses_of_today(root / "systems", copies)
    for system in subfolders(package.results)[:MOST_COPIES]:
        folder = root / "results" / copy_as(system, safe_name(system.name))
        folder.mkdir()
        copies.renamed[str(folder)] = str(system)
        parameters = system / "package_checker_params"
        if is_regular(parameters):
            copies.add(parameters, folder / parameters.name)
        for benchmark in subfolders(system):
            if benchmark.name == BENCHMARK or not _is_other_benchmark(benchmark.name, package.ruleset):
                copies.add_folder(benchmark, folder / safe_name(benchmark.name))
    return PackageCopy(root, copies.renamed, tuple(copies.notes))


def _with_statuses_of_today(systems: Path, copies: ScratchCopies) -> None:
    """Round 4.0 accepted the statuses of the rounds before, which today's tools refuse."""
    for path in children(systems):
        content = path.read_bytes()
        changed = STATUS.sub(lambda found: found[1] + STATUSES_OF_ROUND_4_0[found[2]], content)
        if changed != content:
            path.write_bytes(changed)
            copies.notes.append("statuses of round 4.0 went to the tools as today's")
    copies.notes[:] = dict.fromkeys(copies.notes)


def _is_other_benchmark(name: str, ruleset: str) -> bool:
    from mlperf_logging.benchmark_meta import get_allowed_benchmarks

    return name in get_allowed_benchmarks("training", ruleset)


def safe_name(name: str) -> str:
    """The name, or one that no tool takes for a pattern; two names stay two: a digest tells them apart."""
    if SAFE_NAME.fullmatch(name) and len(name) <= MOST_NAME:
        return name
    stem, dot, suffix = name.rpartition(".")
    plain = re.sub(r"[^A-Za-z0-9_+-]", "_", (stem if dot else name)[:MOST_NAME])
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:6]
    end = re.sub(r"[^A-Za-z0-9]", "_", suffix[:MOST_NAME]) if dot else ""
    return f"{'' if plain[:1].isalnum() else '_'}{plain}_{digest}{dot}{end}"


def copy_results(one: ResultSet, folder: Path) -> ScratchCopies:
    """Copy the runs of one system as result_0.txt, result_1.txt …"""
    copies = ScratchCopies()
    for number, path in enumerate(one.files):
        copies.add(path, folder / f"result_{number}.txt")
    return copies
