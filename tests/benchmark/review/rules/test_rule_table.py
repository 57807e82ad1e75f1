"""Whatever is wrong with a submission is found, with file, line and mend; what is without fault passes."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmark.results.subjects import SubmissionPackage, find_subjects
from benchmark.review.findings import Finding, Rule
from benchmark.review.rules.rule_table import (
    LOG_RULES,
    PACKAGE_RULES,
    RESULT_RULES,
    SET_RULES,
    SYSTEM_RULES,
    facts,
)
from benchmark.review.verdict import own_findings
from tests.benchmark.review.damage import Damage, all_damages, spoilt
from tests.benchmark.review.fixture import records, write_package
from tests.support import REPOSITORY

DAMAGES = all_damages()
WHOLE_FILE = ("empty file", "not a text file", "results without gpt3/")
"""Damages that have no line."""


SECTIONS = (REPOSITORY / "docs" / "facts" / "mlperf_review.md").read_text()


def test_every_rule_names_its_sections_and_no_name_comes_twice() -> None:
    rules: list[Rule[Any]] = [*LOG_RULES, *SET_RULES, *RESULT_RULES, *SYSTEM_RULES, *PACKAGE_RULES]
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        found = re.fullmatch(r"docs/facts/mlperf_review\.md (\d[\d., ]*)(?:; \S.*)?", rule.source)
        assert found, rule.source
        for section in found[1].split(", "):
            assert re.search(rf"(?m)^(### {re.escape(section)} |- \*\*{re.escape(section)}\*\*)", SECTIONS), rule


def test_source_is_path_sections_and_topic() -> None:
    assert facts("4.4, 7.10", "seeds") == "docs/facts/mlperf_review.md 4.4, 7.10; seeds"
    assert facts("3.2") == "docs/facts/mlperf_review.md 3.2"


def errors(package: Path) -> list[Finding]:
    (subject,) = find_subjects([package], "4.1.0")
    assert isinstance(subject, SubmissionPackage)
    return [finding for finding in own_findings(subject) if finding.severity == "error"]


@pytest.mark.parametrize(("batch_size", "evaluations"), [(1536, 24), (2048, 24), (3072, 25), (2688, 22), (4096, 26)])
def test_package_without_fault_has_no_finding(batch_size: int, evaluations: int, tmp_path: Path) -> None:
    rate = 3e-5 if batch_size == 4096 else 2e-5
    package = write_package(
        tmp_path, lambda seed: records(seed, batch_size=batch_size, evaluations=evaluations, rate=rate)
    )
    found = own_findings(SubmissionPackage(package, "4.1.0"))
    void = {"rcp.void_data"} if 2048 < batch_size < 4096 else set()
    assert {finding.rule for finding in found} == void


def test_there_are_enough_damages_and_each_has_a_name() -> None:
    assert len(DAMAGES) >= 60
    assert len({damage.name for damage in DAMAGES}) == len(DAMAGES)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_is_found_with_file_line_and_mend(damage: Damage, tmp_path: Path) -> None:
    package, line = spoilt(damage, tmp_path)
    found = errors(package)
    mine = [finding for finding in found if finding.rule == damage.rule]
    assert mine, f"only {[(finding.rule, finding.place, finding.found) for finding in found]}"
    places = [place for finding in mine for place in (finding.place, *finding.also)]
    assert (package / damage.path).as_posix() in [re.sub(r":\d+$", "", place) for place in places]
    if line is not None:
        assert line in [finding.line for finding in mine]
    if damage.path.endswith(".txt") and damage.name not in WHOLE_FILE:
        assert all(finding.line is not None for finding in mine)
    for finding in mine:
        assert all(text.strip() for text in (finding.found, finding.due, finding.mend, finding.source))
