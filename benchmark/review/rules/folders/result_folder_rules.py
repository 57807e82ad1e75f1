"""What lies in the folders of results: runs that nothing reads, links, and the files that steer the official tools.

Sources: docs/facts/mlperf_review.md 4.1, 4.2, 4.9, 4.15, 5.6, 7.9.
"""

from collections.abc import Iterator
from pathlib import Path

from mlperf_logging.benchmark_meta import get_allowed_benchmarks

from benchmark.results.mllog import TOKEN
from benchmark.results.subjects import BENCHMARK, SCALING, ResultSet, SubmissionPackage
from benchmark.review.findings import Deviation
from benchmark.review.rules.set_rules import RUNS
from stage.regular_files import Entry, is_regular, read_regular

PARAMETERS = "package_checker_params"
BYPASSES = ("rcp-bypass", "seed-checker-bypass", "rcp-bert-train-samples")
"""Options of the official package checker that switch a check off, or another's numbers on."""
FACTOR_TOLERANCE = 1e-4
POWER = "power"
"""Folder of power logs in results/SYSTEM/gpt3."""
SMALL = 1 << 16
MOST_LOOKED_AT = 64 << 20
RUN_RECORD = b'"run_start"'
RESULT_DEPTH = 4
"""Parts of results/SYSTEM/gpt3/result_0.txt."""


def unknown_files(package: SubmissionPackage) -> Iterator[Deviation]:
    for entry in _beside_results(package):
        if not _holds_run(entry):
            due, mend = "result_*.txt", "rename it if it is a result, or move it out of results/"
            yield Deviation(entry.path, None, f"file {entry.path.name}", due, mend)


def unread_runs(package: SubmissionPackage) -> Iterator[Deviation]:
    """A run under a name that no tool reads: one more than the three that count."""
    for entry in _beside_results(package):
        if _holds_run(entry):
            mend = "submit three runs by the order you announced, and keep the others for reviewers who ask"
            yield Deviation(
                entry.path, None, f"a run in file {entry.path.name}", "no run but the three that count", mend
            )


def misplaced(package: SubmissionPackage) -> Iterator[Deviation]:
    """Result logs that the package checker never looks at, because of where they lie."""
    others = {*get_allowed_benchmarks("training", package.ruleset)} - {BENCHMARK}
    for entry in package.entries:
        parts = entry.path.relative_to(package.path).parts
        named = parts[-1].lower().startswith("result_") and parts[-1].lower().endswith(".txt")
        if entry.kind != "file" or not named or parts[0] == "benchmarks" or POWER in parts:
            continue
        below_results = parts[0] == "results" and len(parts) >= RESULT_DEPTH
        if below_results and (parts[2] in others or (parts[2] == BENCHMARK and len(parts) == RESULT_DEPTH)):
            continue
        due, mend = f"results/SYSTEM/{BENCHMARK}/", "move it there: nothing checks it where it is"
        yield Deviation(entry.path, None, f"a result in {entry.path.parent.name}/", due, mend)


def result_links(package: SubmissionPackage) -> Iterator[Deviation]:
    """Links in systems/ and results/: a system behind one is not reviewed, and a run behind one is another's."""
    for entry in package.entries:
        parts = entry.path.relative_to(package.path).parts
        if entry.kind == "link" and (parts[0] in ("systems", "results") or parts[-1] == PARAMETERS):
            mend = "put the files themselves there: tools follow some links and pass over others"
            yield Deviation(entry.path, None, f"a link in {parts[0]}/", "files and folders", mend)


def bypass(package: SubmissionPackage) -> Iterator[Deviation]:
    for path, number, option in _bypasses(package, of_gpt3=True):
        if not _accepted_in_round_3(package, path):
            yield _bypassed(path, number, option)


def bypass_in_round_3(package: SubmissionPackage) -> Iterator[Deviation]:
    """Published packages of round 3.0 have one for another benchmark at their root."""
    for path, number, option in _bypasses(package, of_gpt3=True):
        if _accepted_in_round_3(package, path):
            yield _bypassed(path, number, option)


def bypass_of_others(package: SubmissionPackage) -> Iterator[Deviation]:
    for path, number, option in _bypasses(package, of_gpt3=False):
        yield _bypassed(path, number, option)


def _bypassed(path: Path, number: int, option: str) -> Deviation:
    return Deviation(path, number, option, "no bypass", "remove it: it lets the upload through, not the result")


def _accepted_in_round_3(package: SubmissionPackage, path: Path) -> bool:
    return package.ruleset.startswith("3.") and path.parent == package.path


def _bypasses(package: SubmissionPackage, of_gpt3: bool) -> Iterator[tuple[Path, int, str]]:
    """Path, line and text of options that switch checks off, however they are spelt."""
    for entry in package.entries:
        if entry.path.name != PARAMETERS or entry.kind != "file":
            continue
        parts = entry.path.relative_to(package.path).parts
        elsewhere = parts[0] == "results" and len(parts) >= RESULT_DEPTH and parts[2] != BENCHMARK
        if elsewhere == of_gpt3:
            continue
        for number, line in enumerate(_text(entry.path).splitlines(), 1):
            spelt = line.lower().replace("_", "-")
            if any(option in spelt for option in (*BYPASSES, "bypass")):
                yield entry.path, number, line.strip()[:80]


def better_scaling(package: SubmissionPackage) -> Iterator[Deviation]:
    """A factor that makes the score better than the reference points do, or that is none."""
    for one, factor, due in _factors(package):
        if factor is None or factor < due - FACTOR_TOLERANCE:
            yield _scaled(one, factor, due)


def other_scaling(package: SubmissionPackage) -> Iterator[Deviation]:
    """A factor to the submitter's disadvantage, as one published result has, or none where one is due."""
    for one, factor, due in _factors(package):
        if factor is not None and factor > due + FACTOR_TOLERANCE:
            yield _scaled(one, factor, due)
    for one in package.sets:
        due = one.convergence.factor
        if one.folder is not None and not is_regular(one.folder / SCALING) and due > 1 + FACTOR_TOLERANCE:
            found = f"no {SCALING}, so that the score is not scaled"
            mend = "let the package checker write it; a committee's own factor needs its decision"
            yield Deviation(one.folder, None, found, f"{due:.4f}, from the reference points", mend)


def _scaled(one: ResultSet, factor: float | None, due: float) -> Deviation:
    problem = None if one.scaling is None else one.scaling.problem
    found = str(problem) if factor is None else f"scaling_factor {factor:.4f}"
    mend = "remove it, and let the package checker write it; a committee's own factor needs its decision"
    return Deviation((one.folder or Path()) / SCALING, 1, found, f"{due:.4f}, from the reference points", mend)


def _factors(package: SubmissionPackage) -> Iterator[tuple[ResultSet, float | None, float]]:
    """Systems with a scaling.json, its factor, and the test recomputed, which takes three runs."""
    for one in package.sets:
        if one.folder is None or one.scaling is None:
            continue
        if one.scaling.factor is None:
            yield one, None, one.convergence.factor
        elif is_regular(one.folder / SCALING) and len(one.files) == RUNS:
            yield one, one.scaling.factor, one.convergence.factor


def _beside_results(package: SubmissionPackage) -> Iterator[Entry]:
    """Files in the folders of gpt3's results, at any depth, that no tool reads; power logs are another matter."""
    for one in package.sets:
        known = {*one.files, *((one.folder / name for name in (SCALING, PARAMETERS)) if one.folder is not None else ())}
        for entry in package.entries if one.folder is not None else ():
            inside = entry.path.is_relative_to(one.folder or package.path) and entry.path not in known
            if inside and entry.kind == "file" and POWER not in entry.path.parent.parts:
                yield entry


def _holds_run(entry: Entry) -> bool:
    try:
        content = read_regular(entry.path, MOST_LOOKED_AT)
    except OSError:
        return False
    return TOKEN.strip().encode() in content and RUN_RECORD in content


def _text(path: Path) -> str:
    """Of a small file, as the official tools read it; empty where it cannot be read."""
    try:
        return read_regular(path, SMALL).decode("latin-1")
    except OSError:
        return ""
