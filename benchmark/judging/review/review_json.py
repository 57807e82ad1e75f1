"""Write a review for machines: ``review --json F``. docs/review.md documents the shape, and ``format`` changes with
it."""

import math
from dataclasses import asdict
from typing import Any

from benchmark.judging.results.convergence import Convergence
from benchmark.judging.review.findings import Finding
from benchmark.judging.review.review_forms import ReviewForm
from benchmark.judging.review.verdict import SEVERITIES, Review, SubjectReview

FORMAT = 3


def review_as_json(review: Review) -> ReviewForm:
    """Return the verdict, then one entry per package or set of runs; a number that is not finite becomes null."""
    content: ReviewForm = null_for_nan(
        {
            "format": FORMAT,
            "passed": review.passed,
            "verdict": review.verdict,
            "seconds": round(review.seconds, 3),
            "sandbox": review.sandbox,
            "subjects": [_subject(subject) for subject in review.subjects],
        }
    )
    return content


def null_for_nan(value: Any) -> Any:
    """Return ``value`` with None in the place of NaN and infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: null_for_nan(entry) for name, entry in value.items()}
    return [null_for_nan(entry) for entry in value] if isinstance(value, list | tuple) else value


def _subject(subject: SubjectReview) -> dict[str, Any]:
    return {
        "kind": subject.kind,
        "path": subject.path,
        "ruleset": subject.ruleset,
        "passed": subject.passed,
        "verdict": subject.verdict,
        "counts": {severity: len(subject.of(severity)) for severity in SEVERITIES},
        "official": [asdict(check) for check in subject.checks],
        "not_applicable": list(subject.declined),
        "findings": [_finding(subject, finding) for finding in subject.findings],
        "results": [
            {**asdict(score), "convergence": _convergence(results.convergence)}
            for score, results in zip(subject.scores, subject.sets, strict=True)
        ],
    }


def _finding(subject: SubjectReview, finding: Finding) -> dict[str, Any]:
    """Return a finding with paths relative to the subject's folder, under the keys that docs/review.md gives."""
    near = {"path": subject.near(finding.path), "also": [subject.near(location) for location in finding.also]}
    keys = {"observed": "found", "expected": "due"}
    return {keys.get(name, name): value for name, value in asdict(finding).items()} | near


def _convergence(result: Convergence) -> dict[str, Any]:
    content = asdict(result)
    names = {"point": "compared_with", "points": "reference_points", "repaired": "standing_without_void"}
    return {names.get(name, name): value for name, value in content.items()}
