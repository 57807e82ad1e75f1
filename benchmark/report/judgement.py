"""The review of the runs of a report, as the page shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.results.score import Score
from benchmark.review.findings import Finding
from benchmark.review.official_tools import ToolVerdict
from benchmark.review.verdict import SEVERITIES, Review, review


@dataclass(frozen=True)
class Judgement:
    """A review of several runs, which may be of several systems."""

    found: Review
    scores: Sequence[Score]
    """One per system."""

    @property
    def passed(self) -> bool:
        return self.found.passed

    @property
    def rulesets(self) -> list[str]:
        return sorted({subject.ruleset for subject in self.found.subjects})

    @property
    def checks(self) -> list[ToolVerdict]:
        return [check for subject in self.found.subjects for check in subject.checks]

    @property
    def not_applicable(self) -> list[str]:
        """Official tools that had nothing to check."""
        return sorted({tool for subject in self.found.subjects for tool in subject.not_applicable})

    @property
    def findings(self) -> list[Finding]:
        """Errors first."""
        found = [finding for subject in self.found.subjects for finding in subject.findings]
        return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))

    @property
    def score(self) -> Score | None:
        """That of all runs, where they are those of one system."""
        return self.scores[0] if len(self.scores) == 1 else None

    def score_of(self, path: Path) -> Score | None:
        """That of the system one run was made on."""
        name = str(path.absolute())
        return next((one for one in self.scores if any(run.path == name for run in one.runs)), None)


def judge(paths: Sequence[Path], ruleset: str | None) -> Judgement:
    """Review the result files. Raises InputError for a ruleset without gpt3."""
    found = review(paths, ruleset)
    return Judgement(found, [score for subject in found.subjects for score in subject.scores])
