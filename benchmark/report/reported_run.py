"""The runs of a report, each with its system, its name, and the colour and panel its lines are drawn in."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.report.judgement import Judgement
from benchmark.results.recorded_run import RecordedRun, read_recorded_run
from benchmark.results.score import Score
from benchmark.results.subjects import BENCHMARK
from benchmark.results_table.row_facts import RunFacts
from stage.errors import InputError

COLOURS = 6
"""More lines than that are drawn in panels of their own, for no more colours can be told apart."""


@dataclass(frozen=True)
class ReportedRun:
    """One run of a page."""

    recorded: RecordedRun
    facts: RunFacts
    name: str
    """As much of its path as tells it apart."""
    system: int
    """Place of its system on the page."""
    group: int
    """What has its colour: its system, where there are several, else the run itself."""

    @property
    def score(self) -> Score:
        return self.facts.system.score


def reported_runs(judgement: Judgement) -> list[ReportedRun]:
    """All runs, by system. Raises InputError for a run folder of the caller's whose config.json cannot be read."""
    facts = [(place, run) for place, system in enumerate(judgement.systems) for run in system.runs]
    names = distinct_names([run.summary.log.path for _, run in facts])
    several = len(judgement.systems) > 1
    return [
        ReportedRun(_recorded(run), run, name, system, system if several else number)
        for number, ((system, run), name) in enumerate(zip(facts, names, strict=True))
    ]


def system_names(judgement: Judgement) -> list[str]:
    """As much of each system's name, package and round as tells them apart."""
    told = [
        [one for one in (system.result_set.name, system.package, f"v{system.round}") if one is not None]
        for system in judgement.systems
    ]
    for count in (1, 2, 3):
        names = [", ".join(words[:count]) for words in told]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {words[0]}" for number, words in enumerate(told, 1)]


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """As much of the end of each log's path as tells them apart, without what all results have: gpt3/ and the ending.

    A log that alone is named as it is, as in folders of runs, has its folder's name.
    """
    stems = {path.stem for path in paths}
    parts = [[*_folders(path.resolve()), *([path.stem] if len(stems) > 1 else [])] for path in paths]
    for count in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {path.name}" for number, path in enumerate(paths)]


def _folders(path: Path) -> list[str]:
    return [part for part in path.parent.parts if part != BENCHMARK]


def _recorded(run: RunFacts) -> RecordedRun:
    try:
        return read_recorded_run(run.summary.log.path)
    except InputError:
        if run.system.subject.kind == "runs":
            raise
        return RecordedRun(run.summary.log.path, run.summary, {}, ())  # a config.json in a stranger's package
