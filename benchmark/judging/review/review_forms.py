"""The forms of ``review --json`` (docs/schemas/review.json), for scripts that read it."""

from dataclasses import dataclass
from typing import Literal, TypedDict

from benchmark.judging.results.convergence import ReferencePoint, Standing
from benchmark.judging.results.score import Score
from benchmark.judging.review.findings import Severity
from benchmark.judging.review.official.tool_verdicts import ToolVerdict
from benchmark.judging.review.verdict import Verdict


class FindingForm(TypedDict):
    """A finding. Paths are relative to the subject's folder."""

    rule: str
    severity: Severity
    source: str
    path: str
    line: int | None
    found: str
    due: str
    mend: str
    text: str
    question: str
    rules: str
    also: list[str]


class ConvergenceForm(TypedDict):
    """The convergence test of a result."""

    standing: Standing
    why: str
    batch_size: float | None
    tokens: list[float]
    middle: float | None
    compared_with: ReferencePoint | None
    factor: float
    reference_points: list[ReferencePoint]
    void: list[ReferencePoint]
    standing_without_void: Standing | None


@dataclass(frozen=True, kw_only=True)
class ResultForm(Score):
    """A result: its score and its convergence test."""

    convergence: ConvergenceForm


class SubjectForm(TypedDict):
    """A package, or runs outside of one."""

    kind: Literal["package", "runs"]
    path: str
    ruleset: str
    passed: bool
    verdict: Verdict
    counts: dict[Severity, int]
    official: list[ToolVerdict]
    not_applicable: list[str]
    findings: list[FindingForm]
    results: list[ResultForm]


class ReviewForm(TypedDict):
    """A review. A number that is not finite is null."""

    format: int
    passed: bool
    verdict: Verdict
    seconds: float
    sandbox: str
    subjects: list[SubjectForm]
