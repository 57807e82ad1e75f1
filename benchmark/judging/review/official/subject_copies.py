"""Write the copies that the official tools read, into a folder of our own and under plain names.

A tool never reads a stranger's file. Logs and descriptions are parsed here and written anew (log_copies.py), names keep
to letters, digits and a few signs, and a file that no tool reads is copied empty. Messages name each copy's original
path.
"""

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlperf_logging.benchmark_meta import get_allowed_benchmarks

from benchmark.judging.results.subjects import SubmissionPackage, names_in
from benchmark.judging.review.official.log_copies import bounded, copied_log
from benchmark.run_record.events.mllog import MOST_BYTES
from foundation.regular_files import Entry, UnfitFile, read_regular

MOST_COPIED = 32 << 20
"""Largest number of bytes of a file's records; the largest published log has 5 MB."""
MOST_COPIED_TOGETHER = 1 << 30
MOST_NAME = 80
UNSAFE = re.compile(r"[^A-Za-z0-9._+-]|^[^A-Za-z0-9_]")
MOST_DESCRIPTION_TEXT = 20_000
UNREADABLE_JSON = b"{"
"""Content of a copy of JSON that cannot be read: the tools find their own words for it."""
PARAMETERS = "package_checker_params"
PARAMETER_LINES = ("rcp-bypass", "seed-checker-bypass")
OF_ROUND_4_0 = "4.0.0"
STATUSES_OF_ROUND_4_0 = {"onprem": "Available on-premise", "cloud": "Available cloud", "available": "Available cloud"}
"""Statuses accepted in round 4.0, and today's words for them."""
MOST_IN_REPOSITORY = 50 << 20
"""Size in bytes beyond which the repository checker refuses a file."""
MOST_PATH = 3000
"""Largest number of bytes of a path that is copied for the repository checker."""


@dataclass
class SubjectCopies:
    """SubjectCopies of a subject in a folder, and notes on their changes."""

    folder: Path
    renamed: dict[str, str] = field(default_factory=dict)
    """Original path by the path of each copied file and folder, relative to :attr:`folder`."""
    notes: dict[str, None] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    """Reasons why no tool may read a copy, by its path in :attr:`folder`."""
    unused: int = MOST_COPIED_TOGETHER
    """Bytes that may still be copied."""

    def add(self, path: Path, target: str, ruleset: str = "") -> None:
        """Copy a file to ``target`` in the folder; of a description of round 4.0 with today's word for its status. A
        file that cannot be read, or is too large, is copied empty and noted."""
        try:
            content = self._copied(path, target, ruleset)
            if len(content) > min(MOST_COPIED, self.unused):
                raise UnfitFile(f"{len(content):,} bytes, more than {MOST_COPIED:,}")
        except OSError as error:
            content = b""
            why = str(error) if isinstance(error, UnfitFile) else error.strerror
            self.notes[f"the tools got {path.name!r} empty: {why}"] = None
        self.unused -= len(content)
        _in_folder(self.folder / target).write_bytes(content)
        self.renamed[target] = str(path)

    def _copied(self, path: Path, target: str, ruleset: str) -> bytes:
        if target.endswith(".txt"):
            log = copied_log(read_regular(path, MOST_BYTES))
            self.notes |= dict.fromkeys(f"{path.name}: {note}" for note in log.notes)
            if log.refusal:
                self.refusals[target] = f"{path}:{log.refusal}"
            return log.content
        if target.endswith(".json"):
            return self._copied_json(read_regular(path, MOST_COPIED), ruleset)
        if path.name == PARAMETERS:
            return _copied_parameters(read_regular(path, MOST_COPIED))
        return b""

    def _copied_json(self, content: bytes, ruleset: str) -> bytes:
        try:
            fields = bounded(json.loads(content.decode()), Counter(), MOST_DESCRIPTION_TEXT)
        except (ValueError, RecursionError):
            return UNREADABLE_JSON
        if ruleset == OF_ROUND_4_0 and isinstance(fields, dict) and isinstance(fields.get("status"), str):
            status = STATUSES_OF_ROUND_4_0.get(fields["status"])
            if status is not None:
                fields["status"] = status
                self.notes["the tools got today's words for the statuses of round 4.0"] = None
        return json.dumps(fields).encode()

    def add_runs(self, logs: Sequence[Path], folder: str) -> None:
        """Copy the runs of one system as result_0.txt, result_1.txt …"""
        for number, path in enumerate(logs):
            self.add(path, f"{folder}/result_{number}.txt")

    def add_package(self, package: SubmissionPackage, folder: str) -> None:
        """Copy systems/, and from results/ the folders of judged benchmarks and those that no tool knows."""
        unjudged = {*get_allowed_benchmarks("training", package.ruleset)} - {*names_in(package.ruleset)}
        self.renamed[folder] = str(package.path)
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        for entry in package.entries:
            parts = entry.path.relative_to(package.path).parts
            if parts[0] not in ("systems", "results") or (len(parts) > 2 and parts[2] in unjudged):
                continue
            target = "/".join((folder, *map(safe_name, parts)))
            name = safe_name(entry.path.name)
            if name != entry.path.name:
                words = f"the tools got {entry.path.name!r} as {name}: they take its characters for a pattern"
                self.notes[words] = None
            if entry.kind == "folder":
                (self.folder / target).mkdir(parents=True, exist_ok=True)
                self.renamed[target] = str(entry.path)
            elif entry.kind == "file":
                self.add(entry.path, target, package.ruleset if parts[0] == "systems" else "")

    def copy_to(self, folder: Path, names: Mapping[str, str] | None = None) -> "SubjectCopies":
        """Return the same copies in another folder, for a tool that may write there: all, or those of ``names``, which
        gives the new path of each."""
        if names is None:
            shutil.copytree(self.folder, folder)
            return replace(self, folder=folder)
        for target, renamed in names.items():
            shutil.copyfile(self.folder / target, _in_folder(folder / renamed))
        return SubjectCopies(
            folder,
            {names[target]: path for target, path in self.renamed.items() if target in names},
            dict(self.notes),
            {names[target]: reason for target, reason in self.refusals.items() if target in names},
        )

    def add_repository(self, package: SubmissionPackage, folder: str) -> None:
        """Copy names, kinds and sizes of all entries, and no content: the repository checker looks at nothing else.

        A link of the copy leads to nothing, unless the original is absolute and leads to a file of the package.
        """
        root = Path(os.path.realpath(package.path))
        self.renamed[folder] = str(package.path)
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        for entry in package.entries:
            target = "/".join((folder, *map(repository_name, entry.path.relative_to(package.path).parts)))
            if len(target) > MOST_PATH:
                self.refusals[target[:MOST_PATH]] = f"{entry.path}: a path of more than {MOST_PATH:,} characters"
                return
            self.renamed[target] = str(entry.path)
            copy = self.folder / target
            if entry.kind == "folder":
                copy.mkdir(parents=True, exist_ok=True)
            elif entry.kind == "link":
                copy.symlink_to("/" if _leads_into(entry, root) else "missing")
            elif entry.path != package.path:
                copy.touch()
                os.truncate(copy, MOST_IN_REPOSITORY + 1 if entry.size > MOST_IN_REPOSITORY else 0)


def _in_folder(path: Path) -> Path:
    """Return the path, in a folder that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _copied_parameters(content: bytes) -> bytes:
    """Return the lines that the package checker knows, each as it ends; it compares whole lines."""
    lines = content.decode("latin-1").splitlines(keepends=True)
    return "".join(line if line.rstrip("\n") in PARAMETER_LINES else "-\n" for line in lines).encode("ascii")


def _leads_into(link: Entry, root: Path) -> bool:
    return link.path.readlink().is_absolute() and Path(os.path.realpath(link.path)).is_relative_to(root)


def safe_name(name: str) -> str:
    """Return the name, or one that no tool takes for a pattern; a digest keeps two such names apart. A description
    keeps the name of its system's folder."""
    if not UNSAFE.search(name):
        return name
    suffix = name[-5:] if name.endswith(".json") else name[-4:] if name.endswith(".txt") else ""
    stem = name.removesuffix(suffix)
    digest = hashlib.sha256(os.fsencode(stem)).hexdigest()[:6]
    return f"_{re.sub(r'[^A-Za-z0-9_+-]', '_', stem[:MOST_NAME])}_{digest}{suffix}"


def repository_name(name: str) -> str:
    """Return a plain name with the two faults that the repository checker looks for: a dot in front, and a space."""
    plain = safe_name(name)
    return plain if plain == name else f"{'.' * name.startswith('.')}{' ' * (' ' in name)}{plain}"
