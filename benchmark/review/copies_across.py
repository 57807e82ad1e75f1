"""Runs that two packages of one round have in common, or of which a third is made; what lies in one package its own
rules find."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmark.review.findings import Finding, Rule, Run, apply
from benchmark.review.merged_findings import merged, quoted
from benchmark.review.rules import copy_rules
from benchmark.review.rules.rule_table import facts
from benchmark.review.rules.traces import mixture_rules

Beside = tuple[Sequence[Run], Sequence[Run]]
"""The runs of a package, and those of the packages beside it."""
ROUND_RULES: tuple[Rule[Beside], ...] = (
    Rule(
        "round.same_run", "error", facts("6.8, 7.9", "runs and scoring"),
        lambda both: copy_rules.copied_from_others(*both),
    ),
    Rule(
        "round.mixture", "error", facts("6.10, 7.9", "runs and scoring"),
        lambda both: mixture_rules.made_of_other_submissions(*both),
    ),
)  # fmt: skip


def copies_across(packages: Mapping[Path, Sequence[Run]]) -> dict[Path, list[Finding]]:
    """An error for every run that another package of the same folder has, too, or that is made of its runs, by package.

    Packages of other folders are other rounds, whose logs may be submitted again.
    """
    found = {}
    for package, runs in packages.items():
        beside = [other for other in packages if other != package and other.parent == package.parent]
        others = [run for other in beside for run in packages[other]]
        found[package] = quoted(merged(apply(ROUND_RULES, (runs, others), package))) if others else []
    return found
