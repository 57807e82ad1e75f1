"""The review of the runs of a report, as it shows it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmark.review.compliance import check_compliance
from benchmark.review.findings import Finding, apply
from benchmark.review.rules.table import LOG_RULES
from benchmark.run_files import RunFiles


@dataclass(frozen=True)
class Check:
    tool: str
    subject: str
    kind: str
    verdict: str
    said: Sequence[str]


@dataclass(frozen=True)
class Judgement:
    passed: bool
    ruleset: str
    scope: str
    checks: Sequence[Check]
    findings: Sequence[Finding]
    score_minutes: float | None

    def score_figures(self) -> Iterator[Any]:
        return iter(())


def judge(runs: Sequence[RunFiles], ruleset: str) -> Judgement:
    verdicts = [check_compliance(run.path, ruleset) for run in runs]
    findings = [f for run in runs for f in apply(LOG_RULES, run.summary)]
    checks = [
        Check("compliance", v.path, "good" if v.passed else "bad", "passed" if v.passed else "failed", v.complaints)
        for v in verdicts
    ]
    passed = all(v.passed for v in verdicts) and not any(f.severity == "error" for f in findings)
    return Judgement(passed, ruleset, "", checks, findings, None)
