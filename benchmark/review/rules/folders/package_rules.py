"""The folder of a submission: layout, names, files (docs/facts/mlperf_review.md 4.1, 4.2, 4.8, 4.12, 7.12)."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mlperf_logging.benchmark_meta import get_allowed_benchmarks

from benchmark.results.subjects import BENCHMARK, MOST_FILES, SubmissionPackage, subfolders
from benchmark.review.findings import Deviation
from benchmark.review.rules.set_rules import RUNS
from stage.regular_files import is_folder, is_regular

MOST_FILE_BYTES = 50 << 20
UNSAFE = re.compile(r"[*?\[\]{}\\\n\r\"']|^-")
"""Characters in a folder's name that the official tools take for a pattern, and then find nothing."""
OF_ONE_RUN = ("system_name", "hw_notes", "sw_notes")
"""What descriptions of one system may differ in."""


def layout(package: SubmissionPackage) -> Iterator[Deviation]:
    """Folders that the official tools need, and three runs in each."""
    for name in ("systems", "results"):
        if not is_folder(package.path / name):
            yield Deviation(package.path, None, f"no {name}/", "systems, benchmarks, results")
    if is_folder(package.results) and not package.sets:
        due = f"results/SYSTEM/{BENCHMARK}/{RUNS} result files"
        yield Deviation(package.results, None, f"no {BENCHMARK} results", due)
    for one in package.sets:
        if one.folder is not None and len(one.files) != RUNS:
            yield Deviation(one.folder, None, f"{len(one.files)} files named result_*.txt", f"{RUNS}")


def code(package: SubmissionPackage) -> Iterator[Deviation]:
    """Something that made the results: no official checker looks for it, but the submission rules ask for it."""
    root = package.path / "benchmarks" / BENCHMARK
    written = (one for one in package.entries if one.kind == "file" and one.size and one.path.is_relative_to(root))
    if package.sets and not any(written):
        yield Deviation(root, None, "no code of the results", f"benchmarks/{BENCHMARK}/implementations/NAME/")


def described(package: SubmissionPackage) -> Iterator[Deviation]:
    for system in subfolders(package.results):
        if not is_regular(package.systems / f"{system.name}.json"):
            found = f"no description of system {system.name}"
            yield Deviation(system, None, found, f"systems/{system.name}.json")


def skipped(package: SubmissionPackage) -> Iterator[Deviation]:
    """Folders that the package checker skips, with a report of success, and on which the summarizer crashes."""
    allowed = get_allowed_benchmarks("training", package.ruleset)
    for folder in package.result_folders:
        if folder.name not in allowed:
            yield Deviation(folder, None, f"folder {folder.name}", f"{BENCHMARK}, or another benchmark's name")


def others(package: SubmissionPackage) -> Iterator[Deviation]:
    allowed = get_allowed_benchmarks("training", package.ruleset)
    names = sorted({folder.name for folder in package.result_folders} & {*allowed} - {BENCHMARK})
    if names:
        yield Deviation(package.results, None, f"not reviewed: {', '.join(names)}", BENCHMARK)


def twins(package: SubmissionPackage) -> Iterator[Deviation]:
    """Two systems that their descriptions do not tell apart: one system, handed in twice."""
    seen: dict[str, str] = {}
    for one in package.sets:
        if one.system is not None and one.system.content:
            fields = {name: value for name, value in one.system.content.items() if name not in OF_ONE_RUN}
            other = seen.setdefault(repr(sorted(fields.items())), one.name)
            if other != one.name:
                due = "systems that differ, or one of them"
                yield Deviation(one.system.path, 1, f"the description of {other} again", due)


def friendly_names(package: SubmissionPackage) -> Iterator[Deviation]:
    """Round 3 took whatever name in the code."""
    for entry in package.entries:
        name, in_code = entry.path.name, entry.path.is_relative_to(package.path / "benchmarks")
        if name.startswith(".") or " " in name:
            due = "names without spaces that do not begin with a dot"
            accepted = in_code and package.ruleset.startswith("3.")
            yield Deviation(entry.path, None, f"name {name!r}", due, severity="note" if accepted else None)
        elif not name.isprintable():
            yield Deviation(entry.path, None, f"name {name!r}", "printable characters")
        elif UNSAFE.search(name) and not in_code:
            yield Deviation(entry.path, None, f"name {name!r}", "letters, digits, '.', '_', '+' and '-'")


def sizes(package: SubmissionPackage) -> Iterator[Deviation]:
    if len(package.entries) > MOST_FILES:
        yield Deviation(package.path, None, "more files than are looked at", f"at most {MOST_FILES:,}")
    for entry in package.entries:
        if entry.kind == "file" and entry.size > MOST_FILE_BYTES:
            yield Deviation(entry.path, None, f"{entry.size:,} bytes", f"at most {MOST_FILE_BYTES:,}")


def links(package: SubmissionPackage) -> Iterator[Deviation]:
    """What is no file or folder. A system behind a link is not reviewed, and a run behind one is another's."""
    root = Path(os.path.realpath(package.path))
    for entry in package.entries:
        parts = entry.path.relative_to(package.path).parts
        if entry.kind == "unreadable":
            yield Deviation(entry.path, None, "it cannot be read", "files and folders that can be")
        elif entry.kind not in ("file", "folder", "link"):
            yield Deviation(entry.path, None, f"a {entry.kind}", "files and folders")
        elif entry.kind == "link":
            target = Path(os.path.realpath(entry.path))
            if parts[0] in ("systems", "results"):
                yield Deviation(entry.path, None, f"a link in {parts[0]}/", "files and folders")
            elif not (is_regular(entry.path) or is_folder(entry.path)):
                yield Deviation(entry.path, None, "a link to no file or folder", "a file")
            elif not target.is_relative_to(root):
                yield Deviation(entry.path, None, "a link out of the package", "a file of the package")


def same_division(package: SubmissionPackage) -> Iterator[Deviation]:
    for one in package.sets:
        due = None if one.system is None else one.system.string("division")
        for run in one.runs:
            event = run.log.first("submission_division")
            if event is not None and due in ("closed", "open") and event.value != due:
                found = f"submission_division {event.value!r:.40}"
                yield Deviation(run.log.path, event.line, found, f"{due!r} as in systems/{one.name}.json")
