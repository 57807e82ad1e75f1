"""Make what the official tools get: copies of files, under names that crash no tool, and a rehearsal's own rules.

The package checker and the summarizer write into what they check, and several tools take some characters of a path for
a pattern. Messages name each copy's original path. A file that is too large is copied empty, so that the tools fail on
it.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from mlperf_logging.benchmark_meta import get_allowed_benchmarks

from benchmark.judging.results.judged import Judged
from benchmark.judging.results.subjects import SubmissionPackage, names_in
from benchmark.run_record.mllog import BARE_TOKEN, MOST_BYTES, with_plain_newlines
from foundation.regular_files import UnfitFile, read_regular

REHEARSAL_RULES = Path(__file__).with_name("rehearsal_rules.yaml")
MOST_COPIED = 32 << 20
"""Largest number of bytes of a file's records; the largest published log has 5 MB."""
MOST_COPIED_TOGETHER = 1 << 30
MOST_NAME = 80
UNSAFE = re.compile(r"[^A-Za-z0-9._+-]|^[^A-Za-z0-9_]")
OF_ROUND_4_0 = "4.0.0"
STATUS = re.compile(rb'("status"\s*:\s*")(onprem|cloud|available)(?=")')
STATUSES_OF_ROUND_4_0 = {b"onprem": b"Available on-premise"}
"""Statuses accepted in round 4.0, and today's words for them; all others were available in a cloud."""


@dataclass
class ScratchCopies:
    """Copies of strangers' files in a folder, and notes on what was changed."""

    folder: Path
    renamed: dict[str, str] = field(default_factory=dict)
    """Original path by path of each copied file and folder."""
    notes: dict[str, None] = field(default_factory=dict)
    left: int = MOST_COPIED_TOGETHER
    """Bytes that may still be copied."""

    def add(self, path: Path, target: Path, ruleset: str = "") -> None:
        """Copy a file: of a log only the records, since the tools read nothing else; of a description of round 4.0 with
        today's word for its status. A file that cannot be read, or is too large, is copied empty and noted."""
        try:
            content = read_regular(path, MOST_BYTES)
            if path.suffix == ".txt":
                content = records_of(content)
            if len(content) > min(MOST_COPIED, self.left):
                raise UnfitFile(f"{len(content):,} bytes, more than {MOST_COPIED:,}")
        except OSError as error:
            content = b""
            why = str(error) if isinstance(error, UnfitFile) else error.strerror
            self.notes[f"the tools got {path.name!r} empty: {why}"] = None
        if ruleset == OF_ROUND_4_0 and path.suffix == ".json":
            content, changed = STATUS.subn(_status_of_today, content)
            if changed:
                self.notes["the tools got today's words for the statuses of round 4.0"] = None
        self.left -= len(content)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        self.renamed[str(target)] = str(path)

    def add_package(self, package: SubmissionPackage) -> None:
        """Copy systems/, and from results/ the folders of judged benchmarks and those that no tool knows."""
        others = {*get_allowed_benchmarks("training", package.ruleset)} - {*names_in(package.ruleset)}
        self.renamed[str(self.folder)] = str(package.path)
        for entry in package.entries:
            parts = entry.path.relative_to(package.path).parts
            if parts[0] not in ("systems", "results") or (len(parts) > 2 and parts[2] in others):
                continue
            target = self.folder.joinpath(*map(safe_name, parts))
            if target.name != entry.path.name:
                told = f"the tools got {entry.path.name!r} as {target.name}: they take its characters for a pattern"
                self.notes[told] = None
            if entry.kind == "folder":
                target.mkdir(parents=True, exist_ok=True)
                self.renamed[str(target)] = str(entry.path)
            elif entry.kind == "file":
                self.add(entry.path, target, package.ruleset if parts[0] == "systems" else "")

    def add_runs(self, files: Sequence[Path]) -> None:
        """Copy the runs of one system as result_0.txt, result_1.txt …"""
        for number, path in enumerate(files):
            self.add(path, self.folder / f"result_{number}.txt")


def records_of(content: bytes) -> bytes:
    """Return the lines with a record, without those of other programs."""
    token = BARE_TOKEN.encode()
    return b"".join(line + b"\n" for line in with_plain_newlines(content).split(b"\n") if token in line)


def safe_name(name: str) -> str:
    """Return the name, or one that no tool takes for a pattern; a digest keeps two such names apart. A description
    keeps the name of its system's folder."""
    if not UNSAFE.search(name):
        return name
    suffix = name[-5:] if name.endswith(".json") else name[-4:] if name.endswith(".txt") else ""
    stem = name.removesuffix(suffix)
    digest = hashlib.sha256(os.fsencode(stem)).hexdigest()[:6]
    return f"_{re.sub(r'[^A-Za-z0-9_+-]', '_', stem[:MOST_NAME])}_{digest}{suffix}"


def _status_of_today(found: re.Match[bytes]) -> bytes:
    return found[1] + STATUSES_OF_ROUND_4_0.get(found[2], b"Available cloud")


def rehearsal_rules(judged: Judged, ruleset: str, folder: Path) -> tuple[Path, list[str]]:
    """Write to ``folder`` a copy of the official rules in which the rehearsal's entries replace those of the same key.

    Returns the file to start from, and the keys whose rule was replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    official = files("mlperf_logging.compliance_checker") / f"training_{ruleset}"
    replacing = _own_entries(judged, folder)
    used: set[str] = set()
    for name in ("common.yaml", "closed_common.yaml", f"closed_{judged.stands_for}.yaml"):
        text = (official / name).read_text().replace(f"training_{ruleset}/", f"{folder}/")
        rules = yaml.load(text, Loader=yaml.BaseLoader)
        for place, rule in enumerate(rules):
            key = _key(rule)
            # common.yaml only asks that an evaluation has its position; the accuracy window is the benchmark's
            if key in replacing and (name != "common.yaml" or key != "eval_accuracy"):
                rules[place] = replacing[key]
                used.add(key)
        Path(folder, name).write_text(yaml.safe_dump(rules, sort_keys=False))
    assert used == set(replacing), "the official rules have no such key"
    return Path(folder, "common.yaml"), sorted(used)


def _own_entries(judged: Judged, folder: Path) -> dict[str, Any]:
    values = {
        "name": judged.name,
        "rules": folder,
        "stands_for": judged.stands_for,
        "seq_length": judged.model.seq_length,
        "learning_rate": judged.learning_rates[0].allowed[0],
        "eval_samples": next(iter(judged.eval_samples), None),
        "progress": judged.log_keys.progress,
        "target": judged.target,
        "floor": judged.floor,
    }
    text = REHEARSAL_RULES.read_text()
    for name, value in values.items():
        if value is not None:
            text = text.replace(f"{{{name}}}", str(value))
    lacking = tuple(f"{{{name}}}" for name, value in values.items() if value is None)
    rules = yaml.load(text, Loader=yaml.BaseLoader)
    return {str(_key(rule)): rule for rule in rules if not any(one in str(rule) for one in lacking)}


def _key(rule: Any) -> str | None:
    return rule["KEY"]["NAME"] if "KEY" in rule else None
