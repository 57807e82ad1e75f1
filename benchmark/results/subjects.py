"""Find what to review: single results, the runs of one system, whole packages (docs/facts/mlperf_review.md 4.1)."""

import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlperf_logging.benchmark_meta import get_result_file_counts

from benchmark.results.convergence import USUAL_REFERENCES, Convergence, ReferenceChoice, judge_convergence, points_for
from benchmark.results.judged import GPT3, Judged
from benchmark.results.mllog import read_log
from benchmark.results.result_log import as_number
from benchmark.results.run_summary import RunSummary
from benchmark.results.system_description import SystemDescription, read_system
from stage.errors import InputError
from stage.regular_files import Entry, children, is_folder, is_regular, read_regular, walk

RULESETS = ("3.0.0", "3.1.0", "4.0.0", "4.1.0")
"""Rulesets with gpt3."""
NEWEST_RULESET = RULESETS[-1]
BENCHMARK = "gpt3"
"""Folder of the benchmark's results; the package checker skips any other name."""
RESULT_FILES = "result_*.txt"
DEEPEST = 4
"""Depth of folders below a given one in which result files are looked for."""
MOST_FILES = 200_000
ROUND = re.compile(r"(?:^|_)v(\d\.\d)$")
"""Round in the name of a folder: training_results_v4.0, v3.1."""
SCALING = "scaling.json"
MOST_SCALING_BYTES = 1 << 16


@dataclass(frozen=True)
class Scaling:
    """Factor by which the official summarizer multiplies a score, or the reason why there is none.

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
    """System description of these runs, if there is one."""
    references: ReferenceChoice = USUAL_REFERENCES

    @cached_property
    def runs(self) -> Sequence[RunSummary]:
        return tuple(RunSummary(read_log(path)) for path in self.files)

    @property
    def path(self) -> Path:
        """Return the file of a single run, the folder of runs that lie together, or else their common folder."""
        if len(self.files) == 1:
            return self.files[0]
        return self.folder or Path(os.path.commonpath(self.files or [Path(self.name)]))

    @property
    def judged(self) -> Judged:
        """Return the benchmark as which they are judged: their own, or gpt3 if the logs name none."""
        return next((run.judged for run in self.runs if run.judged is not None), GPT3)

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
        """Return the name of the package PACKAGE/results/SYSTEM/gpt3; None for runs outside a package."""
        if self.folder is None or self.folder.name != BENCHMARK or self.folder.parent.parent.name != "results":
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
        return judge_convergence(self.runs, points, self.references.pruned)

    @cached_property
    def system(self) -> SystemDescription | None:
        return None if self.system_path is None else read_system(self.system_path)


@dataclass(frozen=True)
class SubmissionPackage:
    """A submission package: ORG/{systems,benchmarks,results}."""

    path: Path
    ruleset: str
    references: ReferenceChoice = USUAL_REFERENCES

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
        """Return the results of gpt3, one set per system."""
        found = []
        for folder in self.result_folders:
            if folder.name == BENCHMARK:
                system = self.systems / f"{folder.parent.name}.json"
                files = result_files(folder)
                path = system if is_regular(system) else None
                found.append(ResultSet(folder.parent.name, self.ruleset, files, folder, path, self.references))
        return tuple(found)

    @cached_property
    def descriptions(self) -> Sequence[SystemDescription]:
        return tuple(read_system(path) for path in children(self.systems) if path.suffix == ".json")


Subject = ResultSet | SubmissionPackage


def find_subjects(
    paths: Sequence[Path], ruleset: str | None, references: ReferenceChoice = USUAL_REFERENCES
) -> list[Subject]:
    """Return the subjects to review in result files, folders of them, packages, rounds and folders of rounds.

    Files become sets: those of one folder, or of one benchmark, platform and batch size. Packages of a round are left
    out if they only have results of other benchmarks. Raises InputError for a path with no result, and for a ruleset
    without gpt3.
    """
    packages: dict[Path, None] = {}
    loose: dict[Path, None] = {}
    for path in (each.absolute() for each in paths):
        below = list(_packages_below(path, DEEPEST))
        ours = [each for each in below if each == path or not others_only(each)]
        for package in ours or below:
            _require_gpt3(package, ruleset)
            packages[package] = None
        if not below:
            found = [path] if is_regular(path) else _results_below(path, DEEPEST)
            if not found:
                missing = f"no {RESULT_FILES} there" if is_folder(path) else "not a regular file"
                what = missing if os.path.lexists(path) else "no such file or folder"
                raise InputError(f"{path}: {what}; give a result file, a run folder or a package")
            loose |= dict.fromkeys(found)
    named = [SubmissionPackage(each, ruleset_for(each, ruleset), references) for each in packages]
    return [*_sets(list(loose), ruleset, references), *named]


def _packages_below(path: Path, depth: int) -> Iterator[Path]:
    """Yield the packages at and below a folder; those of a round before anything deeper."""
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


def ruleset_for(path: Path, given: str | None) -> str:
    """Return the given ruleset, or that of a round with gpt3 in the path (``training_results_v4.0``, ``v3.1``), or the
    newest."""
    if given is None:
        rounds = [f"{found[1]}.0" for part in path.parts if (found := ROUND.search(part))]
        return next((ruleset for ruleset in reversed(rounds) if ruleset in RULESETS), NEWEST_RULESET)
    if given not in RULESETS:
        raise InputError(f"--ruleset {given}: gpt3 is in {', '.join(RULESETS)} only")
    return given


def _require_gpt3(package: Path, given: str | None) -> None:
    """Raise InputError for a package of a round without gpt3, and for a package with results of other benchmarks
    only."""
    others = others_only(package)
    if others:
        raise InputError(f"{package}: results of {', '.join(others)} only; only those of {BENCHMARK} are reviewed")
    rounds = [found[1] for part in package.parts if "results_v" in part and (found := ROUND.search(part))]
    if given is None and rounds and not any(f"{one}.0" in RULESETS for one in rounds):
        known = f"{BENCHMARK} is in rounds {RULESETS[0][:3]} to {NEWEST_RULESET[:3]}"
        raise InputError(f"{package}: of round {rounds[-1]}, and {known}; give --ruleset to review it by one of those")


def others_only(package: Path) -> list[str]:
    """Return the benchmarks in a package, if all of them are known and gpt3 is not among them."""
    names = {folder.name for system in subfolders(package / "results") for folder in subfolders(system)}
    return sorted(names) if names and names <= {*get_result_file_counts("training")} - {BENCHMARK} else []


def is_package(path: Path) -> bool:
    return is_folder(path / "results") or is_folder(path / "systems")


def result_files(folder: Path) -> list[Path]:
    return [path for path in children(folder) if path.match(RESULT_FILES) and is_regular(path)]


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, without links to folders; none if the folder may not be read."""
    return [path for path in children(folder) if is_folder(path) and not path.is_symlink()]


def _results_below(folder: Path, depth: int) -> list[Path]:
    found = result_files(folder)
    if not found and depth > 0:
        found = [path for child in subfolders(folder) for path in _results_below(child, depth - 1)]
    return found


def _sets(files: Sequence[Path], ruleset: str | None, references: ReferenceChoice) -> Iterator[ResultSet]:
    folders: dict[Path, list[Path]] = {}
    for path in files:
        folders.setdefault(path.parent, []).append(path)
    alone: dict[tuple[object, ...], list[Path]] = {}
    for folder, inside in folders.items():
        if len(inside) > 1:
            system = _system_of(folder)
            name = folder.parent.name if folder.name == BENCHMARK else folder.name
            yield ResultSet(name, ruleset_for(folder, ruleset), inside, folder, system, references)
        else:
            log = read_log(inside[0])
            keys = ("submission_benchmark", "submission_platform", "global_batch_size")
            words = tuple(repr(log.value(key)) for key in keys)
            alone.setdefault((*words, ruleset_for(folder, ruleset)), []).append(inside[0])
    for inside in alone.values():
        folder = inside[0].parent
        one = len(inside) == 1
        name = f"{folder.name}/{inside[0].name}" if one else f"{len(inside)} runs"
        system = _system_of(folder) if len({path.parent.parent for path in inside}) == 1 else None
        yield ResultSet(name, ruleset_for(folder, ruleset), inside, folder if one else None, system, references)


def _system_of(folder: Path) -> Path | None:
    """Return systems/SYSTEM.json for a folder ORG/results/SYSTEM/gpt3."""
    if folder.parent.parent.name != "results":
        return None
    path = folder.parent.parent.parent / "systems" / f"{folder.parent.name}.json"
    return path if is_regular(path) else None
