"""Prepare the runs of a page, each with its system, its name, and the colour and dash of its lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.report.judgement import Judgement, ReviewedSystem
from benchmark.results.judged import OFFICIAL
from benchmark.results.recorded_run import RecordedRun, with_records
from benchmark.results.run_summary import RunSummary
from benchmark.results.score import Score, middle_run
from stage.errors import InputError

COLOURS = 6
"""Number of colours that can be told apart; with more groups of lines, each has a panel of its own."""
DASHES = 4
TOLD_APART_BY = (
    ("name",),
    ("name", "benchmark"),
    ("name", "package"),
    ("name", "package", "round"),
    ("name", "benchmark", "package", "round"),
)
"""Facts about systems that name them: the first row that gives each a name of its own."""


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


def reported_runs(judgement: Judgement) -> list[ReportedRun]:
    """Return all runs by system. Raises InputError if the config.json of a user's run folder is not readable."""
    found = [(place, system, run) for place, system in enumerate(judgement.systems) for run in system.result_set.runs]
    names = distinct_names([run.log.path for _, _, run in found])
    several = len(judgement.systems) > 1
    before: dict[int, int] = {}
    runs = []
    for number, ((place, system, run), name) in enumerate(zip(found, names, strict=True)):
        group = place if several else number
        dash = before.setdefault(group, 0)
        before[group] += 1
        is_middle = run is middle_run(system.result_set.runs)
        runs.append(ReportedRun(_recorded(system, run), name, place, group, dash % DASHES, system.score, is_middle))
    return runs


def system_names(judgement: Judgement) -> list[str]:
    """Return as much of each system's name, benchmark, package and round as is needed to tell the systems apart."""
    told = [
        {
            "name": system.result_set.name,
            "benchmark": system.score.benchmark,
            "package": system.result_set.package,
            "round": f"v{system.round}",
        }
        for system in judgement.systems
    ]
    for wanted in TOLD_APART_BY:
        names = [", ".join(one for key in wanted if (one := words[key]) is not None) for words in told]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {words['name']}" for number, words in enumerate(told, 1)]


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return as much of the end of each log's path as is needed to tell the logs apart, without the file's ending and,
    if all are of one benchmark, without the benchmark's folder.

    Logs that all have the same name, as in folders of runs, are named by their folders.
    """
    stems = {path.stem for path in paths}
    folders = [path.resolve().parent.parts for path in paths]
    benchmarks = {part for parts in folders for part in parts if part in OFFICIAL}
    hidden = benchmarks if len(benchmarks) == 1 else ()
    parts = [
        [*(part for part in inside if part not in hidden), *([path.stem] if len(stems) > 1 else [])]
        for inside, path in zip(folders, paths, strict=True)
    ]
    for count in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {path.name}" for number, path in enumerate(paths)]


def _recorded(system: ReviewedSystem, run: RunSummary) -> RecordedRun:
    try:
        return with_records(run)
    except InputError:
        if system.subject.kind == "runs":
            raise
        return RecordedRun(run.log.path, run, {}, ())  # a config.json in a stranger's package
