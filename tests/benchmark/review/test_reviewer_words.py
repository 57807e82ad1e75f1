"""Every rule stands somewhere in public, and has a question."""

import re
from typing import Any

from benchmark.review.findings import Rule
from benchmark.review.reviewer_words import (
    PUBLIC_RULES,
    QUESTIONS,
    family_question,
    public_rules,
    question_to_submitter,
)
from benchmark.review.rules.rule_table import LOG_RULES, PACKAGE_RULES, RESULT_RULES, SET_RULES, SYSTEM_RULES
from tests.support import REPOSITORY

RULES: list[Rule[Any]] = [*LOG_RULES, *SET_RULES, *RESULT_RULES, *SYSTEM_RULES, *PACKAGE_RULES]


def test_public_text_of_a_rule() -> None:
    assert public_rules("docs/facts/mlperf_review.md 6.6, 7.3; timing").endswith('training_rules.adoc, "Run Results"')
    assert public_rules("docs/facts/mlperf_review.md 3.3; run_stop").startswith("mlperf-logging, compliance_checker")
    assert public_rules("docs/facts/mlperf_review.md 6.5").startswith("no rule: ")
    assert public_rules("nothing") == ""


def test_every_rule_has_both() -> None:
    families = {rule.name.partition(".")[0] for rule in RULES}
    assert families - set(QUESTIONS) == set()
    for rule in RULES:
        assert public_rules(rule.source), rule
    assert all(question.rstrip().endswith(("?", ".")) for question in QUESTIONS.values())


def test_sections_are_those_of_the_facts() -> None:
    text = (REPOSITORY / "docs" / "facts" / "mlperf_review.md").read_text()
    for section in PUBLIC_RULES:
        assert re.search(rf"(?m)^(## |### |- \*\*){re.escape(section)}(\.|\*\*| )", text), section


def test_question_names_place_and_what_is_due() -> None:
    asked = question_to_submitter("a/b, line 3", "x 5", "6", family_question("seed.one"))
    assert asked.startswith("a/b, line 3: x 5; due: 6. Where does the seed come from")
