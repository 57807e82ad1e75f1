"""Replace four of the official rules with the rehearsal's own (rehearsal_rules.yaml)."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

REHEARSAL_RULES = Path(__file__).with_name("rehearsal_rules.yaml")
RULE_FILES = ("common.yaml", "closed_common.yaml", "closed_gpt3.yaml")


def rehearsal_rules(ruleset: str, folder: Path) -> tuple[Path, list[str]]:
    """Write to ``folder`` a copy of the official rules in which the rehearsal's entries replace those of the same key.

    Returns the file to start from, and the keys whose rule was replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    official = files("mlperf_logging.compliance_checker") / f"training_{ruleset}"
    replacing = _by_key(REHEARSAL_RULES.read_text().replace("{rules}", str(folder)))
    used: set[str] = set()
    for name in RULE_FILES:
        text = (official / name).read_text().replace(f"training_{ruleset}/", f"{folder}/")
        rules = yaml.load(text, Loader=yaml.BaseLoader)
        for place, rule in enumerate(rules):
            key = _key(rule)
            # common.yaml only asks that an evaluation has its position; the accuracy window is gpt3's
            if key in replacing and (name != "common.yaml" or key != "eval_accuracy"):
                rules[place] = replacing[key]
                used.add(key)
        Path(folder, name).write_text(yaml.safe_dump(rules, sort_keys=False))
    assert used == set(replacing), "the official rules have no such key"
    return Path(folder, "common.yaml"), sorted(used)


def _by_key(text: str) -> dict[str, Any]:
    return {str(_key(rule)): rule for rule in yaml.load(text, Loader=yaml.BaseLoader)}


def _key(rule: Any) -> str | None:
    return rule["KEY"]["NAME"] if "KEY" in rule else None
