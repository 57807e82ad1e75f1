"""Official rule files with the rehearsal's own entries in them."""

from pathlib import Path

import pytest
import yaml

from benchmark.results.subjects import RULESETS
from benchmark.review.rehearsal_rules import RULE_FILES, rehearsal_rules


@pytest.mark.parametrize("ruleset", RULESETS)
def test_four_rules_are_replaced_and_no_other(ruleset: str, tmp_path: Path) -> None:
    config, replaced = rehearsal_rules(ruleset, tmp_path / "rules")
    assert config == tmp_path / "rules" / "common.yaml"
    assert replaced == ["eval_accuracy", "max_sequence_length", "opt_base_learning_rate", "submission_benchmark"]
    text = {name: (tmp_path / "rules" / name).read_text() for name in RULE_FILES}
    assert f"training_{ruleset}/" not in "".join(text.values())
    rules = {rule["KEY"]["NAME"]: rule["KEY"] for rule in yaml.safe_load(text["closed_gpt3.yaml"]) if "KEY" in rule}
    assert rules["max_sequence_length"]["CHECK"].strip() == "v['value'] == 128"
    assert "0.95" in rules["opt_adam_beta_2"]["CHECK"]
