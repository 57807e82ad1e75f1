"""Review everything below some folders, package by package, and prepare its systems and runs for a page.

A broken package does not stop the review of the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmark.judging.report.page_parts import number
from benchmark.judging.results.judged import OFFICIAL
from benchmark.judging.results.recorded_run import RecordedRun, with_records
from benchmark.judging.results.run_summary import RunSummary
from benchmark.judging.results.score import Score, middle_run
from benchmark.judging.results.subjects import ResultSet, find_subjects, holds_results
from benchmark.judging.review.findings import STOPPED, Finding, Severity
from benchmark.judging.review.verdict import SubjectReview, Verdict, review, subject_review
from benchmark.run_record.events.mllog import read_log
from benchmark.run_record.events.recorded_events import RecordedEvents
from foundation.errors import InputError
from foundation.regular_files import is_folder, is_regular

EMPTY = "no results in it that are reviewed"
COLOURS = 6
"""Number of colours that a reader can distinguish; with more groups of lines, each group has its panel."""
DASHES = 4
TOLD_APART_BY = (
    ("name",),
    ("name", "benchmark"),
    ("name", "package"),
    ("name", "package", "round"),
    ("name", "benchmark", "package", "round"),
)
"""Facts about systems that name them: the first row whose names differ is used."""


@dataclass(frozen=True)
class ReviewedSystem:
    """One system of a package, or loose runs that belong together."""

    subject: SubjectReview
    result_set: ResultSet
    score: Score

    @property
    def round(self) -> str:
        """Return the round by whose rules the system is judged, such as 4.1."""
        return self.result_set.ruleset.rpartition(".")[0]

    @property
    def verdict(self) -> Verdict:
        return self.subject.verdict_of(self.result_set)

    def findings(self, severity: Severity) -> list[Finding]:
        """Return the findings in its runs, its folder and its description; those of its package if it is the only
        one."""
        return self.subject.of_system(self.result_set, severity)


@dataclass(frozen=True)
class ReportedRun:
    """One run of a page."""

    recorded: RecordedRun
    name: str
    """Shortest end of its path that identifies it."""
    system: int
    """Position of its system on the page."""
    group: int
    """Group that shares its colour: its system if there are several, else the run itself."""
    dash: int
    """Dash of its line: runs of one colour differ in their dashes."""
    score: Score
    is_middle: bool
    """True if its time is the middle one of its system."""

    @property
    def summary(self) -> RunSummary:
        return self.recorded.summary


@dataclass(frozen=True)
class ProgressUnit:
    """The unit in which a page counts training: samples if the logs of all runs do, else tokens."""

    name: str
    tokens: int
    """Tokens in a unit."""

    def count(self, tokens: float | None) -> str:
        return number(None if tokens is None else tokens / self.tokens, "{:,.0f}")


def progress_unit(runs: Sequence[RunSummary]) -> ProgressUnit:
    """Return the unit of these runs' logs; tokens if the logs differ in it."""
    units = {ProgressUnit(run.rules.unit, run.rules.tokens_per_unit) for run in runs}
    return units.pop() if len(units) == 1 else ProgressUnit("tokens", 1)


@dataclass(frozen=True)
class Judgement:
    """The reviews of several packages and sets of runs, perhaps of several rounds."""

    subjects: Sequence[SubjectReview]
    empty_folders: Sequence[Path] = ()
    """Folders named beside others that hold no result, as of a run that never began."""

    @cached_property
    def systems(self) -> list[ReviewedSystem]:
        """Return the systems by benchmark, best score first; then those without a score, in the order of paths."""
        reviewed = [
            ReviewedSystem(subject, results, scored)
            for subject in self.subjects
            for results, scored in zip(subject.sets, subject.scores, strict=True)
        ]
        return sorted(
            reviewed,
            key=lambda results: (results.score.benchmark, results.score.minutes is None, results.score.minutes or 0),
        )

    @property
    def problems(self) -> list[tuple[Path, str]]:
        """Return packages whose review stopped, or that hold nothing to review, and the reasons."""
        return [
            (
                Path(subject.path),
                next((finding.observed for finding in subject.findings if finding.rule == STOPPED), EMPTY),
            )
            for subject in self.subjects
            if not subject.sets
        ]

    @property
    def passed(self) -> bool:
        return bool(self.systems) and not self.problems and all(subject.passed for subject in self.subjects)

    @property
    def rulesets(self) -> list[str]:
        return sorted({subject.ruleset for subject in self.subjects})

    @property
    def score(self) -> Score | None:
        """Return the score of all runs, if they belong to one system."""
        return self.systems[0].score if len(self.systems) == 1 else None


def judge(paths: Sequence[Path], ruleset: str | None = None, *, official: bool = True) -> Judgement:
    """Review everything below ``paths``; with ``official``, run the official checkers, too.

    Folders without results are left out beside others that have some.
    Raises InputError if there are no paths, for a path without results, and if none of the files is a log.
    """
    if not paths:
        raise InputError("no results given; name result files, folders of runs, packages or rounds (see --help)")
    if all(is_regular(path) and not read_log(path).events for path in paths):
        suffix = f", nor in {len(paths) - 1} more files" if len(paths) > 1 else ""
        raise InputError(f"{paths[0]}: no MLLOG record in it{suffix}; name result files, folders of runs or packages")
    empty_folders = [path for path in paths if is_folder(path) and not holds_results(path)]
    reviewed_paths = [path for path in paths if path not in empty_folders] or paths
    if official:
        return Judgement(review(reviewed_paths, ruleset).subjects, empty_folders)
    return Judgement([subject_review(subject, ()) for subject in find_subjects(reviewed_paths, ruleset)], empty_folders)


def reported_runs(judgement: Judgement) -> list[ReportedRun]:
    """Return all runs by system. Raises InputError if the config.json of a user's run folder is not readable."""
    placed_runs = [
        (system_index, system, run)
        for system_index, system in enumerate(judgement.systems)
        for run in system.result_set.runs
    ]
    names = distinct_names([run.log.path for _, _, run in placed_runs])
    several = len(judgement.systems) > 1
    runs_in_group: dict[int, int] = {}
    runs = []
    for run_number, ((system_index, system, run), name) in enumerate(zip(placed_runs, names, strict=True)):
        group = system_index if several else run_number
        dash = runs_in_group.setdefault(group, 0)
        runs_in_group[group] += 1
        is_middle = run is middle_run(system.result_set.runs)
        runs.append(
            ReportedRun(_recorded(system, run), name, system_index, group, dash % DASHES, system.score, is_middle)
        )
    return runs


def system_names(judgement: Judgement) -> list[str]:
    """Return as much of each system's name, benchmark, package and round as distinguishes the systems."""
    facts = [
        {
            "name": system.result_set.name,
            "benchmark": system.score.benchmark,
            "package": system.result_set.package,
            "round": f"v{system.round}",
        }
        for system in judgement.systems
    ]
    for keys in TOLD_APART_BY:
        names = [", ".join(text for key in keys if (text := words[key]) is not None) for words in facts]
        if len(set(names)) == len(names):
            return names
    return [f"{position}: {words['name']}" for position, words in enumerate(facts, 1)]


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return as much of the end of each log's path as distinguishes the logs, without the file's ending and,
    if all are of one benchmark, without the benchmark's folder.

    Logs that all have the same name, as in folders of runs, are named by their folders.
    """
    stems = {path.stem for path in paths}
    folders = [path.resolve().parent.parts for path in paths]
    benchmarks = {part for parts in folders for part in parts if part in OFFICIAL}
    hidden = benchmarks if len(benchmarks) == 1 else ()
    parts = [
        [*(part for part in folder_parts if part not in hidden), *([path.stem] if len(stems) > 1 else [])]
        for folder_parts, path in zip(folders, paths, strict=True)
    ]
    for count in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{position}: {path.name}" for position, path in enumerate(paths)]


def _recorded(system: ReviewedSystem, run: RunSummary) -> RecordedRun:
    try:
        return with_records(run)
    except InputError:
        if system.subject.kind == "runs":
            raise
        return RecordedRun(run.log.path, run, {}, RecordedEvents())  # a config.json in a stranger's package
