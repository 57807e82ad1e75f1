"""Every rule stands somewhere in public."""

import re
from typing import Any

from benchmark.review.findings import Rule
from benchmark.review.public_rules import PUBLIC_RULES, public_rules
from benchmark.review.rules.rule_table import LOG_RULES, PACKAGE_RULES, RESULT_RULES, SET_RULES, SYSTEM_RULES
from tests.support import REPOSITORY

RULES: list[Rule[Any]] = [*LOG_RULES, *SET_RULES, *RESULT_RULES, *SYSTEM_RULES, *PACKAGE_RULES]


def test_public_text_of_a_rule() -> None:
    assert public_rules("6.6, 7.3; timing").endswith('training_rules.adoc, "Run Results"')
    assert public_rules("3.3; run_stop").startswith("mlperf-logging, compliance_checker")
    assert public_rules("6.5").startswith("no rule: ")
    assert public_rules("nothing") == ""
    assert all(public_rules(rule.source) for rule in RULES)


def test_sections_are_those_of_the_facts() -> None:
    text = (REPOSITORY / "docs" / "facts" / "mlperf_review.md").read_text()
    for section in PUBLIC_RULES:
        assert re.search(rf"(?m)^(## |### |- \*\*){re.escape(section)}(\.|\*\*| )", text), section
