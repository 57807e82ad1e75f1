"""Runs that two packages of one round have in common; what lies in one package its own rules find."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmark.review.findings import Finding, Rule, Run, apply
from benchmark.review.merged_findings import merged, quoted
from benchmark.review.rules import copy_rules
from benchmark.review.rules.rule_table import facts

Beside = tuple[Sequence[Run], Sequence[Run]]
"""The runs of a package, and those of the packages beside it."""
SAME_RUN: Rule[Beside] = Rule(
    "round.same_run", "error", facts("6.8, 7.9", "runs and scoring"), lambda both: copy_rules.copied_from_others(*both)
)


def copies_across(packages: Mapping[Path, Sequence[Run]]) -> dict[Path, list[Finding]]:
    """An error for every run that another package of the same folder has, too, by package.

    Packages of other folders are other rounds, whose logs may be submitted again.
    """
    found = {}
    for package, runs in packages.items():
        beside = [other for other in packages if other != package and other.parent == package.parent]
        others = [run for other in beside for run in packages[other]]
        found[package] = quoted(merged(apply((SAME_RUN,), (runs, others), package))) if others else []
    return found
