"""The folder of a submission: layout, names, files (docs/facts/mlperf_review.md 4.1, 4.2, 4.12, 7.12)."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mlperf_logging.benchmark_meta import get_allowed_benchmarks

from benchmark.results.subjects import BENCHMARK, MOST_FILES, SubmissionPackage, subfolders
from benchmark.review.findings import Deviation
from benchmark.review.rules.copy_rules import like_name
from benchmark.review.rules.naming_rules import placeholder
from benchmark.review.rules.set_rules import RUNS
from stage.regular_files import is_folder, is_regular

TOP = ("systems", "benchmarks", "results")
SCRIPTS = ("README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh")
MOST_FILE_BYTES = 50 << 20
UNSAFE = re.compile(r"[*?\[\]{}\\\n\r\"']|^-")
"""Characters in a folder's name that the official tools take for a pattern, and then find nothing."""


def layout(package: SubmissionPackage) -> Iterator[Deviation]:
    for name in ("systems", "results"):
        if not is_folder(package.path / name):
            yield Deviation(package.path, None, f"no {name}/", f"{', '.join(TOP)}", f"add {name}/ with its files")
    if is_folder(package.path / "results") and not package.sets:
        due, mend = f"results/SYSTEM/{BENCHMARK}/{RUNS} result files", "put the result files there"
        yield Deviation(package.results, None, f"no {BENCHMARK} results", due, mend)


def top_level(package: SubmissionPackage) -> Iterator[Deviation]:
    if not is_folder(package.path / "benchmarks"):
        mend = "add the code: no official checker looks for it, but the submission rules and reviewers do"
        yield Deviation(package.path, None, "no benchmarks/", ", ".join(TOP), mend)
    for folder in subfolders(package.path):
        if folder.name not in (*TOP, "documentation", "documents", "docs") and not folder.name.startswith("."):
            mend = "move it below one of them; only these count as content"
            yield Deviation(folder, None, f"folder {folder.name}", ", ".join(TOP), mend)


def code(package: SubmissionPackage) -> Iterator[Deviation]:
    """README and scripts to reproduce the result (submission rules)."""
    root = package.path / "benchmarks" / BENCHMARK / "implementations"
    if not is_folder(package.path / "benchmarks"):
        return
    implementations = subfolders(root)
    below = {entry.path.name for entry in package.entries if entry.path.is_relative_to(root)}
    if not implementations:
        mend = "add the code that made the results, with README.md and scripts"
        yield Deviation(root, None, "no implementation", "benchmarks/gpt3/implementations/NAME/", mend)
    for name in SCRIPTS:
        if implementations and name not in below:
            yield Deviation(root, None, f"no {name}", ", ".join(SCRIPTS), f"add {name}, so that strangers can run it")


def described(package: SubmissionPackage) -> Iterator[Deviation]:
    for system in subfolders(package.results):
        if not (package.systems / f"{system.name}.json").is_file():
            due = f"systems/{system.name}.json"
            mend = "add the description under the name of the results folder: the package checker crashes without it"
            yield Deviation(system, None, f"no description of system {system.name}", due, mend)


def undescribed(package: SubmissionPackage) -> Iterator[Deviation]:
    names = {system.name for system in subfolders(package.results)}
    for description in package.descriptions:
        if description.path.stem not in names:
            due, mend = f"results/{description.path.stem}/", "remove it, or add its results"
            yield Deviation(description.path, 1, "a system without results", due, mend)


def benchmark_names(package: SubmissionPackage) -> Iterator[Deviation]:
    allowed = get_allowed_benchmarks("training", package.ruleset)
    for folder in package.result_folders:
        if folder.name not in allowed:
            mend = f"name it {BENCHMARK}: the package checker skips others and reports success, the summarizer crashes"
            yield Deviation(folder, None, f"folder {folder.name}", f"{BENCHMARK}, or another benchmark's name", mend)


def other_benchmarks(package: SubmissionPackage) -> Iterator[Deviation]:
    allowed = get_allowed_benchmarks("training", package.ruleset)
    for folder in package.result_folders:
        if folder.name in allowed and folder.name != BENCHMARK:
            yield Deviation(folder, None, "not reviewed", BENCHMARK, "use the official tools for other benchmarks")


def file_count(package: SubmissionPackage) -> Iterator[Deviation]:
    for one in package.sets:
        if one.folder is not None and len(one.files) != RUNS:
            found = f"{len(one.files)} files named result_*.txt"
            mend = "give exactly three runs, named result_0.txt to result_2.txt"
            yield Deviation(one.folder, None, found, f"{RUNS}", mend)


def friendly_names(package: SubmissionPackage) -> Iterator[Deviation]:
    for entry in package.entries:
        name = entry.path.name
        if name.startswith(".") or " " in name:
            due, mend = "names without spaces that do not begin with a dot", "rename or remove it"
            yield Deviation(entry.path, None, f"name {name!r}", due, mend)
        elif not name.isprintable():
            due = "printable characters"
            mend = "rename it: a terminal may obey it, and the official tools stop where they print it"
            yield Deviation(entry.path, None, f"name {name!r}", due, mend)
        elif UNSAFE.search(name) and not entry.path.is_relative_to(package.path / "benchmarks"):
            due = "letters, digits, '.', '_', '+' and '-'"
            mend = "rename it: the official tools take it for a pattern and find nothing"
            yield Deviation(entry.path, None, f"name {name!r}", due, mend)


def sizes(package: SubmissionPackage) -> Iterator[Deviation]:
    if len(package.entries) > MOST_FILES:
        due = f"at most {MOST_FILES:,}"
        yield Deviation(package.path, None, "more files than are looked at", due, "leave out what no result needs")
    for entry in package.entries:
        if entry.kind == "file" and entry.size > MOST_FILE_BYTES:
            found, due = f"{entry.size:,} bytes", f"at most {MOST_FILE_BYTES:,}"
            yield Deviation(entry.path, None, found, due, "leave it out, or say where to get it")


def links(package: SubmissionPackage) -> Iterator[Deviation]:
    root = Path(os.path.realpath(package.path))
    for entry in package.entries:
        if entry.kind == "unreadable":
            yield Deviation(entry.path, None, "it cannot be read", "files and folders that can be", "mend its rights")
        elif entry.kind not in ("file", "folder", "link"):
            yield Deviation(entry.path, None, f"a {entry.kind}", "files and folders", "remove it")
        elif entry.kind == "link":
            target = Path(os.path.realpath(entry.path))
            if not (is_regular(entry.path) or is_folder(entry.path)):
                yield Deviation(
                    entry.path, None, "a link to no file or folder", "a file", "copy the file there, or remove the link"
                )
            elif not target.is_relative_to(root):
                found = "a link out of the package"
                yield Deviation(entry.path, None, found, "a file of the package", "copy the file there")


def same_division(package: SubmissionPackage) -> Iterator[Deviation]:
    for one in package.sets:
        due = None if one.system is None else one.system.string("division")
        for run in one.runs:
            event = run.log.first("submission_division")
            if event is not None and due in ("closed", "open") and event.value != due:
                found, mend = f"submission_division {event.value!r:.40}", "use one division in log and description"
                yield Deviation(run.log.path, event.line, found, f"{due!r} as in systems/{one.name}.json", mend)


def same_submitter(package: SubmissionPackage) -> Iterator[Deviation]:
    """Two spellings of one name; placeholders and other names are told by naming_rules.py."""
    for one in package.sets:
        submitter = None if one.system is None else one.system.string("submitter")
        for run in one.runs:
            event = run.log.first("submission_org")
            if event is None or not isinstance(event.value, str) or submitter is None or event.value == submitter:
                continue
            if not placeholder(event.value) and like_name(event.value, submitter):
                found = f"submission_org {event.value!r:.60}"
                due = f"{submitter!r:.60} as in systems/{one.name}.json"
                yield Deviation(run.log.path, event.line, found, due, "use one name of the submitter everywhere")
