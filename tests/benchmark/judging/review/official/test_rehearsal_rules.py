"""A rehearsal is checked by the official rules, but for a few that its size replaces."""

from pathlib import Path

import pytest
import yaml

from benchmark.judging.results.judged import REHEARSED, REHEARSED_LLAMA, Judged
from benchmark.judging.review.official.rehearsal_rules import rehearsal_rules

REPLACED = ["eval_accuracy", "max_sequence_length", "opt_base_learning_rate", "submission_benchmark"]


@pytest.mark.parametrize(
    ("judged", "ruleset"), [(one, ruleset) for one in (REHEARSED, REHEARSED_LLAMA) for ruleset in one.rulesets]
)
def test_few_rules_are_replaced_and_no_other(judged: Judged, ruleset: str, tmp_path: Path) -> None:
    config, replaced = rehearsal_rules(judged, ruleset, tmp_path / "rules")
    assert config == tmp_path / "rules" / "common.yaml"
    assert replaced == sorted([*REPLACED, *(["eval_samples"] if judged.evaluation.eval_samples else [])])
    text = {path.name: path.read_text() for path in (tmp_path / "rules").iterdir()}
    assert f"training_{ruleset}/" not in "".join(text.values())
    official = yaml.safe_load(text[f"closed_{judged.stands_for}.yaml"])
    rules = {rule["KEY"]["NAME"]: rule["KEY"] for rule in official if "KEY" in rule}
    assert rules["max_sequence_length"]["CHECK"].strip() == "v['value'] == 128"
    assert judged.log_keys.progress in rules["eval_accuracy"]["CHECK"][0]
    assert "0.95" in rules[f"opt_{judged.log_keys.optimizer}_beta_2"]["CHECK"]
