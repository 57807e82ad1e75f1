"""Find the subjects of a review: single results, the runs of a system, packages (docs/facts/mlperf_review.md 4.1)."""

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlperf_logging.benchmark_meta import get_result_file_counts

from benchmark.judging.results.convergence import (
    USUAL_REFERENCES,
    Convergence,
    ReferenceChoice,
    judge_convergence,
    points_for,
)
from benchmark.judging.results.judged import GPT3, JUDGED, OFFICIAL, Judged, assumed, in_words
from benchmark.judging.results.ruleset_of_log import ruleset_of_log
from benchmark.judging.results.run_summary import RunSummary
from benchmark.judging.results.system_description import SystemDescription, read_system
from benchmark.run_record.events.mllog import ResultLog, as_number, read_log
from benchmark.run_record.file_names import RESULT_FILES
from foundation.errors import InputError
from foundation.plain_text import shortened
from foundation.regular_files import Entry, children, is_folder, is_regular, read_regular, walk

DEEPEST = 4
"""Depth of the folders that are searched for result files."""
MOST_FILES = 200_000
ROUND = re.compile(r"(?:^|_)v(\d\.\d)$")
"""Round in the name of a folder: training_results_v4.0, v3.1."""
MOST_NAME = 60
"""Largest number of characters shown of a name."""
SCALING = "scaling.json"
MOST_SCALING_BYTES = 1 << 16


@dataclass(frozen=True)
class Scaling:
    """Factor by which the official summarizer multiplies a score, or the reason for its absence.

    Source: docs/facts/mlperf_review.md 4.15.
    """

    factor: float | None
    problem: str | None


@dataclass(frozen=True)
class ResultSet:
    """The runs of one system."""

    name: str
    ruleset: str
    files: Sequence[Path]
    folder: Path | None
    """Folder that holds exactly these runs; None if they come from several folders."""
    system_path: Path | None = None
    """System description of these runs; None without one."""
    references: ReferenceChoice = USUAL_REFERENCES

    @cached_property
    def runs(self) -> Sequence[RunSummary]:
        return tuple(RunSummary(read_log(path), self.ruleset, self._expected) for path in self.files)

    @property
    def path(self) -> Path:
        """Return the file of a single run, the folder of runs that lie together, or else their common folder."""
        if len(self.files) == 1:
            return self.files[0]
        return self.folder or Path(os.path.commonpath(self.files or [Path(self.name)]))

    @cached_property
    def judged(self) -> Judged:
        """Return the benchmark that judges them: the first that a log names and the ruleset has, or else that of their
        folder."""
        candidates = (run.judged for run in self.runs if run.judged is not None and self.ruleset in run.judged.rulesets)
        return next(candidates, self._expected)

    @property
    def _expected(self) -> Judged:
        """Return the benchmark of the folder; outside a package, the benchmark for which the ruleset was chosen."""
        judged = None if self.package is None or self.folder is None else OFFICIAL[self.folder.name]
        fits = judged is not None and self.ruleset in judged.rulesets
        return (judged if judged is not None and fits else assumed(self.ruleset)).at(self.ruleset)

    @cached_property
    def scaling(self) -> Scaling | None:
        """Return the factor by which the summarizer multiplies their time: 1 in a package without scaling.json; None
        outside a package."""
        if self.folder is None:
            return None
        path = self.folder / SCALING
        return read_scaling(path) if os.path.lexists(path) else None if self.package is None else Scaling(1.0, None)

    @property
    def package(self) -> str | None:
        """Return the name of the package PACKAGE/results/SYSTEM/BENCHMARK; None for runs outside a package."""
        if self.folder is None or self.folder.name not in OFFICIAL or self.folder.parent.parent.name != "results":
            return None
        return self.folder.parents[2].name

    @property
    def is_open(self) -> bool:
        """Return whether the runs are in the open division, in which neither seeds nor convergence are tested
        (docs/facts/mlperf_review.md 4.3)."""
        return any(run.division == "open" for run in self.runs)

    @cached_property
    def convergence(self) -> Convergence:
        points = points_for(self.judged, self.ruleset, self.references)
        return judge_convergence(self.runs, points, self.references.pruned, self.judged)

    @cached_property
    def system(self) -> SystemDescription | None:
        return None if self.system_path is None else read_system(self.system_path)


@dataclass(frozen=True)
class SubmissionPackage:
    """A submission package: ORG/{systems,benchmarks,results}."""

    path: Path
    ruleset: str
    references: ReferenceChoice = USUAL_REFERENCES
    rehearsal: Judged | None = None
    """The rehearsed benchmark of a package that ``rehearse --package`` makes, which is no submission; None for a
    submission."""
    by_rehearsal: bool = False
    """Whether the rehearsal itself reviews the package; everybody else is told that it is no submission."""

    @cached_property
    def benchmarks(self) -> Mapping[str, Judged]:
        """Return the judged benchmarks that the package may have results of, by name."""
        if self.rehearsal is not None:
            return {self.rehearsal.name: self.rehearsal}
        return {name: OFFICIAL[name] for name in names_in(self.ruleset)}

    @property
    def results(self) -> Path:
        return self.path / "results"

    @property
    def systems(self) -> Path:
        return self.path / "systems"

    @cached_property
    def entries(self) -> Sequence[Entry]:
        """Return the package's entries, up to one more than MOST_FILES; links are not followed."""
        return tuple(itertools.islice(walk(self.path), MOST_FILES + 1))

    @cached_property
    def result_folders(self) -> Sequence[Path]:
        """Return the folders results/SYSTEM/BENCHMARK, with any name."""
        return tuple(folder for system in subfolders(self.results) for folder in subfolders(system))

    @cached_property
    def sets(self) -> Sequence[ResultSet]:
        """Return the results of the benchmarks that the ruleset has, one set per system and benchmark."""
        result_sets = []
        for folder in self.result_folders:
            if folder.name in self.benchmarks:
                system = self.systems / f"{folder.parent.name}.json"
                files = result_files(folder)
                path = system if is_regular(system) else None
                result_sets.append(ResultSet(folder.parent.name, self.ruleset, files, folder, path, self.references))
        return tuple(result_sets)

    @cached_property
    def descriptions(self) -> Sequence[SystemDescription]:
        return tuple(read_system(path) for path in children(self.systems) if path.suffix == ".json")


Subject = ResultSet | SubmissionPackage


def find_subjects(
    paths: Sequence[Path], ruleset: str | None, references: ReferenceChoice = USUAL_REFERENCES
) -> list[Subject]:
    """Return the subjects to review in result files, folders of them, packages, rounds and folders of rounds.

    Files of one folder, or of one benchmark, platform and batch size, become a set. Packages of a round are left
    out if they only have results of other benchmarks. Raises InputError for a path with no result, and for a ruleset
    without the benchmark.
    """
    packages: dict[Path, None] = {}
    loose: dict[Path, None] = {}
    for path in (folder.absolute() for folder in paths):
        below = list(_packages_below(path, DEEPEST))
        judged_packages = [folder for folder in below if folder == path or not unjudged_benchmarks(folder)]
        for package in judged_packages or below:
            _require_judged(package, ruleset)
            packages[package] = None
        if not below:
            logs = [path] if is_regular(path) else _results_below(path, DEEPEST)
            if not logs:
                missing = f"no {RESULT_FILES} there{misnamed(path)}" if is_folder(path) else "not a regular file"
                problem = missing if os.path.lexists(path) else "no such file or folder"
                raise InputError(f"{path}: {problem}; give a result file, a run folder or a package")
            loose |= dict.fromkeys(logs)
    submissions = [
        SubmissionPackage(folder, package_ruleset(folder, ruleset), references, _rehearsal_of(folder))
        for folder in packages
    ]
    return [*_sets(list(loose), ruleset, references), *submissions]


def holds_results(path: Path) -> bool:
    """Return whether a review finds anything to review at or below a path."""
    is_packaged = next(_packages_below(path.absolute(), DEEPEST), None) is not None
    return is_packaged or is_regular(path) or bool(_results_below(path.absolute(), DEEPEST))


def _packages_below(path: Path, depth: int) -> Iterator[Path]:
    """Yield the packages at and below a folder; a round's packages come before anything deeper."""
    if is_package(path):
        yield path
    elif depth > 0 and not result_files(path):
        for child in subfolders(path):
            yield from _packages_below(child, depth - 1)


def read_scaling(path: Path) -> Scaling:
    """Return the number ``scaling_factor`` of a scaling.json; no content of the file makes it raise."""
    try:
        content = json.loads(read_regular(path, MOST_SCALING_BYTES))
    except OSError as error:
        return Scaling(None, error.strerror or str(error))
    except (ValueError, RecursionError) as error:
        return Scaling(None, f"not JSON ({error})")
    factor = as_number(content.get("scaling_factor")) if isinstance(content, dict) else None
    return Scaling(factor, None if factor is not None else "no number scaling_factor")


def names_in(ruleset: str) -> list[str]:
    """Return the names of the judged benchmarks that a ruleset has."""
    return [name for name, judged in OFFICIAL.items() if ruleset in judged.rulesets]


def ruleset_for(path: Path, requested: str | None, benchmarks: Sequence[Judged], log: ResultLog | None = None) -> str:
    """Return the requested ruleset, or that of a round in the path (``training_results_v4.0``, ``v3.1``) with a
    benchmark of these, or that of the log, or the newest that has most of them. Without a benchmark, any round will do.

    Raises InputError for a requested ruleset that has none of them.
    """
    rulesets = {ruleset for judged in benchmarks or JUDGED.values() for ruleset in judged.rulesets}
    if requested is None:
        rounds = [f"{match[1]}.0" for part in path.parts if (match := ROUND.search(part))]
        named = [] if log is None else _benchmarks_in(log)
        if log is not None and named and not any(ruleset in rulesets for ruleset in rounds):
            return ruleset_of_log(log, named[0])
        newest = max(_rulesets(benchmarks or (GPT3,)), key=lambda judged: (_rulesets(benchmarks).count(judged), judged))
        return next((ruleset for ruleset in reversed(rounds) if ruleset in rulesets), newest)
    if requested not in rulesets:
        words = " and ".join(
            f"{judged.name} is in {', '.join(judged.rulesets)}" for judged in benchmarks or OFFICIAL.values()
        )
        raise InputError(f"--ruleset {requested}: {words} only")
    return requested


def package_ruleset(package: Path, requested: str | None) -> str:
    """Return the ruleset of a package, as :func:`ruleset_for` does for the benchmarks that it has folders of."""
    benchmarks = [JUDGED[name] for name in _benchmark_folders(package) if name in JUDGED]
    folders = [folder for system in subfolders(package / "results") for folder in subfolders(system)]
    paths = [path for folder in folders if folder.name in JUDGED for path in result_files(folder)]
    log = read_log(paths[0]) if paths and len(benchmarks) == 1 else None
    return ruleset_for(package, requested, benchmarks, log)


def _rehearsal_of(package: Path) -> Judged | None:
    """Return the rehearsed benchmark of a package that has results of a rehearsal only."""
    names = _benchmark_folders(package)
    judged = JUDGED.get(names[0]) if len(names) == 1 else None
    return None if judged is None or judged.official else judged


def _rulesets(benchmarks: Sequence[Judged]) -> list[str]:
    return [ruleset for judged in benchmarks for ruleset in judged.rulesets]


def _require_judged(package: Path, requested: str | None) -> None:
    """Raise InputError for a package of a round without any of its benchmarks, and for a package with results of
    unjudged benchmarks only."""
    unjudged = unjudged_benchmarks(package)
    if unjudged:
        judged_names = ", ".join(OFFICIAL)
        raise InputError(f"{package}: results of {', '.join(unjudged)} only; only those of {judged_names} are reviewed")
    rounds = [match[1] for part in package.parts if "results_v" in part and (match := ROUND.search(part))]
    benchmarks = [OFFICIAL[name] for name in _benchmark_folders(package) if name in OFFICIAL] or [*OFFICIAL.values()]
    if requested is None and rounds and not any(f"{round_name}.0" in _rulesets(benchmarks) for round_name in rounds):
        judged_names = in_words(benchmarks)
        raise InputError(
            f"{package}: of round {rounds[-1]}, and {judged_names}; give --ruleset to review it by one of those"
        )


def unjudged_benchmarks(package: Path) -> list[str]:
    """Return the benchmarks in a package whose benchmarks are all known, and none judged here."""
    names = _benchmark_folders(package)
    return names if names and {*names} <= {*get_result_file_counts("training")} - {*OFFICIAL} else []


def _benchmark_folders(package: Path) -> list[str]:
    return sorted({folder.name for system in subfolders(package / "results") for folder in subfolders(system)})


def is_package(path: Path) -> bool:
    return is_folder(path / "results") or is_folder(path / "systems")


def result_files(folder: Path) -> list[Path]:
    return [path for path in children(folder) if is_result(path)]


def is_result(path: Path) -> bool:
    return path.match(RESULT_FILES) and is_regular(path)


def misnamed(folder: Path) -> str:
    """Return words that name something in a folder with nearly a result's name; no words without one."""
    others = (path.name for path in children(folder) if "result" in path.name.lower() and not is_result(path))
    return next((f", but {shortened(name, MOST_NAME)}" for name in others), "")


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, without links to folders; none if the folder may not be read."""
    return [path for path in children(folder) if is_folder(path) and not path.is_symlink()]


def _results_below(folder: Path, depth: int) -> list[Path]:
    logs = result_files(folder)
    if not logs and depth > 0:
        logs = [path for child in subfolders(folder) for path in _results_below(child, depth - 1)]
    return logs


def _sets(files: Sequence[Path], ruleset: str | None, references: ReferenceChoice) -> Iterator[ResultSet]:
    folders: dict[Path, list[Path]] = {}
    for path in files:
        folders.setdefault(path.parent, []).append(path)
    alone: dict[tuple[str, ...], list[Path]] = {}
    for folder, logs in folders.items():
        if len(logs) > 1:
            system = _system_of(folder)
            name = folder.parent.name if folder.name in OFFICIAL else folder.name
            named = next((log for log in map(read_log, logs) if _benchmarks_in(log)), None)
            chosen = ruleset_for(folder, ruleset, [] if named is None else _benchmarks_in(named), named)
            yield ResultSet(name, chosen, logs, folder, system, references)
        else:
            log = read_log(logs[0])
            keys = ("submission_benchmark", "submission_platform", "global_batch_size")
            words = tuple(repr(log.value(key)) for key in keys)
            alone.setdefault((ruleset_for(folder, ruleset, _benchmarks_in(log), log), *words), []).append(logs[0])
    for (chosen, *_), logs in alone.items():
        folder = logs[0].parent
        is_single = len(logs) == 1
        name = f"{folder.name}/{logs[0].name}" if is_single else f"{len(logs)} runs"
        system = _system_of(folder) if len({path.parent.parent for path in logs}) == 1 else None
        yield ResultSet(name, chosen, logs, folder if is_single else None, system, references)


def _benchmarks_in(log: ResultLog) -> list[Judged]:
    """Return the benchmark that a log names, if it is judged here."""
    judged = JUDGED.get(log.text("submission_benchmark") or "")
    return [] if judged is None else [judged]


def _system_of(folder: Path) -> Path | None:
    """Return systems/SYSTEM.json for a folder ORG/results/SYSTEM/BENCHMARK."""
    if folder.parent.parent.name != "results":
        return None
    path = folder.parent.parent.parent / "systems" / f"{folder.parent.name}.json"
    return path if is_regular(path) else None
