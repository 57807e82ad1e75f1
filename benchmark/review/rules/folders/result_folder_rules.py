"""What lies beside results: runs that nothing reads, and the files that steer the official tools.

Sources: docs/facts/mlperf_review.md 4.2, 4.9, 4.15, 5.6, 7.9, 7.12.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from benchmark.results.mllog import TOKEN
from benchmark.results.subjects import BENCHMARK, SCALING, SubmissionPackage
from benchmark.review.findings import Deviation
from benchmark.review.rules.set_rules import RUNS
from stage.regular_files import is_regular, read_regular

PARAMETERS = "package_checker_params"
FACTOR_TOLERANCE = 1e-4
MOST_LOOKED_AT = 1 << 18
"""Bytes of a file: a log says its benchmark at its beginning."""
FEWEST_RECORDS = 20
"""Of a log; code and papers may quote a few."""
A_RUN = re.compile(rb'"key":\s*"submission_benchmark",\s*"value":\s*"%b"' % BENCHMARK.encode())
SMALL = 1 << 16


def stray_runs(package: SubmissionPackage) -> Iterator[Deviation]:
    """Runs of gpt3 that are not among the three of a system: beside them, among the code or another benchmark's."""
    counted = {path for one in package.sets for path in one.files}
    for entry in package.entries:
        if entry.kind == "file" and entry.path not in counted and entry.size > FEWEST_RECORDS * len(TOKEN):
            content = _beginning(entry.path)
            if content.count(TOKEN.encode()) >= FEWEST_RECORDS and A_RUN.search(content):
                due = f"runs in results/SYSTEM/{BENCHMARK}/result_*.txt only"
                yield Deviation(entry.path, None, f"a run of {BENCHMARK} that nothing counts", due)


def bypass(package: SubmissionPackage) -> Iterator[Deviation]:
    """Options that switch a check off, however they are spelt. For another benchmark they are its own business, as was
    one at the root of packages in round 3."""
    for entry in package.entries:
        if entry.path.name != PARAMETERS or entry.kind != "file":
            continue
        parts = entry.path.relative_to(package.path).parts
        elsewhere = parts[0] == "results" and len(parts) >= 4 and parts[2] != BENCHMARK
        ours = not elsewhere and not (package.ruleset.startswith("3.") and len(parts) == 1)
        for number, line in enumerate(_text(entry.path).splitlines(), 1):
            spelt = line.lower().replace("_", "-")
            if "bypass" in spelt or "rcp-bert-train-samples" in spelt:
                found = line.strip()[:80]
                yield Deviation(entry.path, number, found, "no bypass", severity=None if ours else "note")


def scaling(package: SubmissionPackage) -> Iterator[Deviation]:
    """A factor that makes the score better than the reference points do, or that is none, is an error; one to the
    submitter's disadvantage, or none where one is due, a question."""
    for one in package.sets:
        if one.folder is None or one.scaling is None or len(one.files) != RUNS:
            continue
        due, factor = one.convergence.factor, one.scaling.factor
        path, words = one.folder / SCALING, f"{due:.4f}, from the reference points"
        if factor is None:
            yield Deviation(path, 1, str(one.scaling.problem), words)
        elif not is_regular(path):
            if due > 1 + FACTOR_TOLERANCE:
                found = f"no {SCALING}, so that the score is not scaled"
                yield Deviation(one.folder, None, found, words, severity="warning")
        elif abs(factor - due) > FACTOR_TOLERANCE:
            found = f"scaling_factor {factor:.4f}"
            yield Deviation(path, 1, found, words, severity="warning" if factor > due else None)


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_LOOKED_AT)
    except OSError:
        return b""


def _text(path: Path) -> str:
    """Of a small file, as the official tools read it; empty where it cannot be read."""
    try:
        return read_regular(path, SMALL).decode("latin-1")
    except OSError:
        return ""
