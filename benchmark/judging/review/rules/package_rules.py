"""Check the folder of a submission: layout, names, files, uncounted runs, and files that steer the official tools.

Sources: docs/facts/mlperf_review.md 1.4, 4.1, 4.2, 4.8, 4.9, 4.12, 4.15, 5.6, 7.9, 7.12.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mlperf_logging.benchmark_meta import get_allowed_benchmarks

from benchmark.judging.results.judged import OFFICIAL
from benchmark.judging.results.subjects import SCALING, SubmissionPackage, misnamed, subfolders
from benchmark.judging.review.findings import Deviation, at
from benchmark.run_record.events.mllog import TOKEN
from foundation.regular_files import Entry, is_folder, is_regular

UNSAFE = re.compile(r"[*?\[\]{}\\\n\r\"']|^-")
"""Characters in a folder's name that the official tools take for a pattern, so that they find nothing."""
OF_ONE_RUN = ("system_name", "hw_notes", "sw_notes")
"""Fields in which descriptions of one system may differ."""
PARAMETERS = "package_checker_params"
FACTOR_TOLERANCE = 1e-4
MOST_LOOKED_AT = 1 << 18
"""Bytes read of a file: a log names its benchmark at its beginning."""
FEWEST_RECORDS = 20
"""Least number of records of a log; code and papers may quote a few records."""
A_RUN = re.compile(rb'"key":\s*"submission_benchmark",\s*"value":\s*"(%b)"' % "|".join(OFFICIAL).encode())


def layout(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check for the folders that the official tools need, the number of runs in each, and a description. The package
    checker skips an unknown benchmark and reports success, and crashes without a description."""
    for name in ("systems", "results"):
        if not is_folder(package.path / name):
            yield Deviation(package.path, None, f"no {name}/", "systems, benchmarks, results")
    ours = package.benchmarks
    if is_folder(package.results) and not package.sets:
        expected = " or ".join(f"results/SYSTEM/{name}/{ours[name].runs} result files" for name in ours)
        yield Deviation(package.results, None, f"no {' or '.join(ours)} results", expected)
    for results in package.sets:
        named = ours[results.path.name if results.folder is None else results.folder.name]
        if len(results.files) != named.runs:
            few = misnamed(results.path) if len(results.files) < named.runs else ""
            yield Deviation(results.path, None, f"{len(results.files)} files named result_*.txt{few}", f"{named.runs}")
        for run in results.runs:
            if run.benchmark in (*OFFICIAL, *ours) and run.benchmark != named.name:
                where = run.log.first("submission_benchmark")
                yield at(run, where, f"a run of {run.benchmark}", f"runs of {named.name} in its folder")
    for system in subfolders(package.results):
        if not is_regular(package.systems / f"{system.name}.json"):
            yield Deviation(system, None, f"no description of system {system.name}", f"systems/{system.name}.json")
    allowed = {*get_allowed_benchmarks("training", package.ruleset), *ours}
    for folder in package.result_folders:
        if folder.name not in allowed:
            expected = f"{' or '.join(ours)}, or another benchmark's name"
            yield Deviation(folder, None, f"folder {folder.name}", expected)
    unjudged = sorted({folder.name for folder in package.result_folders} & allowed - {*ours})
    if unjudged:
        yield Deviation(
            package.results, None, f"not reviewed: {', '.join(unjudged)}", " or ".join(ours), "not reviewed"
        )


def rehearsed(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check that the package is none of a rehearsal, unless the rehearsal itself reviews it."""
    if package.rehearsal is not None and not package.by_rehearsal:
        observed = f"results of {package.rehearsal.name}: the package of a rehearsal, which is no submission"
        yield Deviation(package.results, None, observed, f"results of {package.rehearsal.stands_for}")


def code(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check that the package holds the code that made the results: no official checker looks for it, but the submission
    rules ask for it."""
    for name in dict.fromkeys(results.folder.name for results in package.sets if results.folder is not None):
        root = package.path / "benchmarks" / name
        files = (entry for entry in package.entries if _is_code(entry, root))
        if not any(files):
            yield Deviation(root, None, "no code that made the results", f"benchmarks/{name}/implementations/NAME/")


def _is_code(entry: Entry, root: Path) -> bool:
    return entry.kind == "file" and entry.size > 0 and entry.path.is_relative_to(root)


def twins(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check for two systems with the same description and benchmark: one system, handed in twice."""
    systems: dict[tuple[str, str], str] = {}
    for results in package.sets:
        if results.system is not None and results.system.content:
            fields = {name: value for name, value in results.system.content.items() if name not in OF_ONE_RUN}
            system = systems.setdefault((results.judged.name, repr(sorted(fields.items()))), results.name)
            if system != results.name:
                expected = "two different systems, or only one of these"
                yield Deviation(results.system.path, 1, f"the description of {system} again", expected)


def files(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check for names that official tools refuse or take for a pattern, and for entries that are neither file nor
    folder: a system behind a link is not reviewed, and a run behind a link is another's. Round 3 accepted any name in
    the code."""
    root = Path(os.path.realpath(package.path))
    for entry in package.entries:
        observed, expected = _unfit(entry, package, root)
        if observed:
            in_code = entry.path.is_relative_to(package.path / "benchmarks") and package.ruleset.startswith("3.")
            case = "code of round 3" if in_code and observed.startswith("name") else ""
            yield Deviation(entry.path, None, observed, expected, case)


def _unfit(entry: Entry, package: SubmissionPackage, root: Path) -> tuple[str, str]:
    """Return the fault of an entry, and the expectation; two empty texts if it has none."""
    name, parts = entry.path.name, entry.path.relative_to(package.path).parts
    if name.startswith(".") or " " in name:
        return f"name {name!r}", "names without spaces that do not begin with a dot"
    if not name.isprintable() or (UNSAFE.search(name) and parts[0] != "benchmarks"):
        return f"name {name!r}", "letters, digits, '.', '_', '+' and '-'"
    if entry.kind == "unreadable":
        return "it cannot be read", "files and folders that can be read"
    if entry.kind != "link":
        return ("", "") if entry.kind in ("file", "folder") else (f"a {entry.kind}", "files and folders")
    if parts[0] in ("systems", "results"):
        return f"a link in {parts[0]}/", "files and folders"
    if not Path(os.path.realpath(entry.path)).is_relative_to(root) or not entry.path.exists():
        return "a link out of the package, or to nothing", "a file of the package"
    return "", ""


def same_division(package: SubmissionPackage) -> Iterator[Deviation]:
    for results in package.sets:
        described = None if results.system is None else results.system.string("division")
        for run in results.runs:
            event = run.log.first("submission_division")
            if event is not None and described in ("closed", "open") and event.value != described:
                observed = f"submission_division {event.value!r:.40}"
                yield at(run, event, observed, f"{described!r} as in systems/{results.name}.json")


def stray_runs(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check for runs of a judged benchmark outside those of a system: beside them, in the code or in another
    benchmark's folder."""
    counted = {path for results in package.sets for path in results.files}
    for entry in package.entries:
        if entry.kind == "file" and entry.path not in counted and entry.size > FEWEST_RECORDS * len(TOKEN):
            content = _beginning(entry.path)
            named = A_RUN.search(content) if content.count(TOKEN.encode()) >= FEWEST_RECORDS else None
            if named is not None:
                name = named[1].decode()
                expected = f"runs in results/SYSTEM/{name}/result_*.txt only"
                yield Deviation(entry.path, None, f"a run of {name} that nothing counts", expected)


def bypass(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check for options that switch a check off, in any spelling. Another benchmark may have its own, as one at the
    root of packages had in round 3."""
    for entry in package.entries:
        if entry.path.name != PARAMETERS or entry.kind != "file":
            continue
        parts = entry.path.relative_to(package.path).parts
        elsewhere = parts[0] == "results" and len(parts) >= 4 and parts[2] not in package.benchmarks
        allowed = elsewhere or (package.ruleset.startswith("3.") and len(parts) == 1)
        for number, line in enumerate(_beginning(entry.path).decode("latin-1").splitlines(), 1):
            spelt = line.lower().replace("_", "-")
            if "bypass" in spelt or "rcp-bert-train-samples" in spelt:
                yield Deviation(
                    entry.path, number, line.strip()[:80], "no bypass", "another benchmark" if allowed else ""
                )


def scaling(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check the scaling factor. It is an error if it improves the score more than the reference points do, or is
    invalid; it is a question if it worsens the score, or is missing where the points give one."""
    for results in package.sets:
        if results.scaling is None or len(results.files) != results.judged.runs:
            continue
        expected, factor = results.convergence.factor, results.scaling.factor
        path, words = results.path / SCALING, f"{expected:.4f}, from the reference points"
        if factor is None:
            yield Deviation(path, 1, str(results.scaling.problem), words)
        elif not is_regular(path):
            if expected > 1 + FACTOR_TOLERANCE:
                yield Deviation(results.path, None, f"no {SCALING}, so that the score is not scaled", words, "missing")
        elif abs(factor - expected) > FACTOR_TOLERANCE:
            yield Deviation(path, 1, f"scaling_factor {factor:.4f}", words, "worse" if factor > expected else "")


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_LOOKED_AT)
    except OSError:
        return b""
