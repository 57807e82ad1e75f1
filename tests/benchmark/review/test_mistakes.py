"""Whatever is wrong with a submission is told, by which rule, how, and where; what is without fault passes."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.findings import Rule
from benchmark.review.rules.rule_table import LOG_RULES, PACKAGE_RULES, ROUND_RULES, SET_RULES
from benchmark.review.verdict import own_findings
from tests.benchmark.review.damage import Damage, all_damages, spoilt
from tests.benchmark.review.fixture import records, write_package
from tests.benchmark.review.trials.mistakes import MISTAKES, Mistake
from tests.benchmark.review.trials.submission_on_trial import with_steps
from tests.support import REPOSITORY

DAMAGES = all_damages()
WHOLE_FILE = ("empty file", "not a text file", "results without gpt3/")
"""Damages that have no line."""
SECTIONS = (REPOSITORY / "docs" / "facts" / "mlperf_review.md").read_text()


def test_every_rule_has_its_sections_and_what_it_says_and_no_name_comes_twice() -> None:
    tables = (LOG_RULES, SET_RULES, PACKAGE_RULES, ROUND_RULES)
    rules: list[Rule[Any]] = [rule for table in tables for rule in table]
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        found = re.fullmatch(r"(\d[\d., ]*)(?:; \S.*)?", rule.source)
        assert found, rule.source
        for section in found[1].split(", "):
            assert re.search(rf"(?m)^(### {re.escape(section)} |- \*\*{re.escape(section)}\*\*)", SECTIONS), rule
        assert rule.mend or rule.severity != "error", rule.name
        assert rule.question or rule.severity != "warning", rule.name


@pytest.mark.parametrize(("batch_size", "evaluations"), [(1536, 24), (2048, 24), (3072, 25), (2688, 22), (4096, 26)])
def test_package_without_fault_has_no_finding(batch_size: int, evaluations: int, tmp_path: Path) -> None:
    rate = 3e-5 if batch_size == 4096 else 2e-5
    package = write_package(
        tmp_path, lambda seed: records(seed, batch_size=batch_size, evaluations=evaluations, rate=rate)
    )
    found = own_findings(SubmissionPackage(package, "4.1.0"))
    void = {("rcp.test", "note")} if 2048 < batch_size < 4096 else set()
    assert {(finding.rule, finding.severity) for finding in found} == void


def test_there_are_enough_mistakes_and_each_has_a_name() -> None:
    names = [*(one.name for one in DAMAGES), *(one.name for one in MISTAKES)]
    assert len(names) >= 60
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_is_told_with_file_and_line(damage: Damage, tmp_path: Path) -> None:
    package, line = spoilt(damage, tmp_path)
    found = own_findings(SubmissionPackage(package, "4.1.0"))
    due = "warning" if damage.rule.startswith("?") else "error"
    mine = [one for one in found if (one.rule, one.severity) == (damage.rule.removeprefix("?"), due)]
    assert mine, f"only {[(finding.rule, finding.place, finding.found) for finding in found]}"
    places = [place for finding in mine for place in (finding.place, *finding.also)]
    assert (package / damage.path).as_posix() in [re.sub(r":\d+$", "", place) for place in places]
    if line is not None:
        assert line in [finding.line for finding in mine]
    if damage.path.endswith(".txt") and damage.name not in WHOLE_FILE:
        assert all(finding.line is not None for finding in mine)
    for finding in mine:
        assert all(text.strip() for text in (finding.found, finding.due, finding.source))
        assert finding.question if due == "warning" else finding.mend


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.name)
def test_mistake_is_told(mistake: Mistake, tmp_path: Path) -> None:
    one = with_steps()
    mistake.change(one)
    found = own_findings(SubmissionPackage(one.write(tmp_path), "4.1.0"))
    told = [(finding.rule, finding.severity) for finding in found if finding.severity != "note"]
    assert (mistake.rule.removeprefix("?"), "warning" if mistake.rule.startswith("?") else "error") in told, found
    assert mistake.rule.startswith("?") == all(severity == "warning" for _, severity in told), told
