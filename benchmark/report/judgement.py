"""The review of the runs of a report, as the page shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmark.results.score import Score
from benchmark.results_table.reviewed_places import ReviewedPlace, review_places
from benchmark.results_table.row_facts import SystemFacts
from benchmark.review.findings import Finding
from benchmark.review.official_tools import ToolVerdict
from benchmark.review.verdict import SEVERITIES, SubjectReview


@dataclass(frozen=True)
class Judgement:
    """A review of several runs, which may be of several systems, packages and rounds."""

    places: Sequence[ReviewedPlace]

    @cached_property
    def subjects(self) -> list[SubjectReview]:
        return [subject for place in self.places if place.review is not None for subject in place.review.subjects]

    @cached_property
    def systems(self) -> list[SystemFacts]:
        """In the order they were given; of a round as its packages are named."""
        return [system for place in self.places for system in place.systems]

    @property
    def problems(self) -> list[tuple[Path, str]]:
        """Packages that could not be reviewed, or have nothing to review."""
        return [
            (place.path, place.problem or "no results of gpt3 in it")
            for place in self.places
            if place.problem is not None or not place.systems
        ]

    @property
    def passed(self) -> bool:
        return bool(self.systems) and not self.problems and all(subject.passed for subject in self.subjects)

    @property
    def rulesets(self) -> list[str]:
        return sorted({subject.ruleset for subject in self.subjects})

    @property
    def checks(self) -> list[ToolVerdict]:
        return [check for subject in self.subjects for check in subject.checks]

    @property
    def not_applicable(self) -> list[str]:
        """Official tools that had nothing to check."""
        return sorted({tool for subject in self.subjects for tool in subject.not_applicable})

    @property
    def findings(self) -> list[Finding]:
        """Errors first."""
        found = [finding for subject in self.subjects for finding in subject.findings]
        return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))

    @property
    def score(self) -> Score | None:
        """That of all runs, where they are those of one system."""
        return self.systems[0].score if len(self.systems) == 1 else None


def judge(paths: Sequence[Path], ruleset: str | None) -> Judgement:
    """Review result files, folders of runs, packages and rounds. Raises InputError for a path without results."""
    return Judgement(review_places(paths, ruleset))
