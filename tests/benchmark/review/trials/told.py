"""What one rule of the table says of a submission on trial."""

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.results.system_description import read_system
from benchmark.review.findings import Finding, apply
from benchmark.review.rules.rule_table import LOG_RULES, PACKAGE_RULES, RESULT_RULES, SET_RULES, SYSTEM_RULES
from benchmark.review.rules.system_rules import Described
from tests.benchmark.review.fixture import summary_of
from tests.benchmark.review.trials.cheats import (
    cheats_in_folders,
    cheats_in_packages,
    cheats_in_records,
    cheats_in_runs,
    cheats_in_settings,
    cheats_in_times,
    cheats_in_values,
    combined_cheats,
)
from tests.benchmark.review.trials.honest import honest_conventions, honest_folders, honest_records, honest_runs
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial, made_up, with_steps
from tests.benchmark.review.trials.trial_table import Trial

CHEATS = [
    *cheats_in_values.cheat.trials,
    *cheats_in_times.cheat.trials,
    *cheats_in_records.cheat.trials,
    *cheats_in_folders.cheat.trials,
    *cheats_in_settings.cheat.trials,
    *cheats_in_runs.cheat.trials,
    *combined_cheats.cheat.trials,
    *cheats_in_packages.cheat.trials,
]
HONEST = [
    *honest_runs.honest.trials,
    *honest_records.honest.trials,
    *honest_folders.honest.trials,
    *honest_conventions.honest.trials,
]
RULESET = "4.1.0"


@lru_cache(maxsize=1)
def _bases() -> tuple[SubmissionOnTrial, SubmissionOnTrial]:
    return made_up(), with_steps()


def base(steps: bool = False) -> SubmissionOnTrial:
    return copy.deepcopy(_bases()[steps])


def trial(name: str) -> Trial:
    (found,) = [one for one in (*CHEATS, *HONEST) if one.name == name]
    return found


def tried(name: str) -> SubmissionOnTrial:
    """The made-up submission after that trial; with steps where it takes them."""
    one = trial(name)
    submission = base(steps=bool(one.bases) and "made" not in one.bases)
    one.change(submission)
    return submission


def told(rule: str, one: SubmissionOnTrial, folder: Path) -> list[Finding]:
    """Of a rule of the table, whatever it is about; written to ``folder`` only where it looks at files."""
    runs = [summary_of(log.records, Path(f"result_{number}.txt")) for number, log in enumerate(one.logs)]
    tables: list[tuple[Any, list[Any]]] = [(LOG_RULES, list(runs)), (SET_RULES, [runs])]
    for table, subjects in tables:
        found = [each for each in table if each.name == rule]
        if found:
            return [finding for subject in subjects for finding in apply(found, subject)]
    result = [each for each in RESULT_RULES if each.name == rule]
    if result:
        results = ResultSet(one.system, RULESET, [], None)
        results.__dict__["runs"] = tuple(runs)
        return list(apply(result, results))
    package = one.write(folder)
    described = [each for each in SYSTEM_RULES if each.name == rule]
    if described:
        return list(apply(described, Described(read_system(package / one.description_path), RULESET)))
    (of_package,) = [each for each in PACKAGE_RULES if each.name == rule]
    return list(apply([of_package], SubmissionPackage(package, RULESET)))


def rule_tests(found: Sequence[tuple[str, str, str]], steps: bool = False) -> tuple[Callable[..., None], ...]:
    """Two tests of a module of rules: each rule tells its cheat in these words, and nothing of an honest submission.

    ``found``: rule, trial, words; ``steps``: whether the honest one logs its steps.
    """

    @pytest.mark.parametrize(("rule", "name", "words"), found, ids=[name for _, name, _ in found])
    def cheat_is_told(rule: str, name: str, words: str, tmp_path: Path) -> None:
        findings = told(rule, tried(name), tmp_path)
        assert findings, rule
        assert words in findings[0].found
        assert all(one.found and one.due and one.mend and one.question for one in findings)

    @pytest.mark.parametrize("rule", sorted({rule for rule, *_ in found}))
    def nothing_is_told(rule: str, tmp_path: Path) -> None:
        assert told(rule, base(steps), tmp_path) == []

    return cheat_is_told, nothing_is_told
