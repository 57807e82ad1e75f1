"""Write a rehearsal's rules for the compliance checker: the official ones, changed by rehearsal_rules.yaml."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from benchmark.judging.results.judged import Judged

REHEARSAL_RULES = Path(__file__).with_name("rehearsal_rules.yaml")


def rehearsal_rules(judged: Judged, ruleset: str, folder: Path) -> tuple[Path, list[str]]:
    """Write to ``folder`` a copy of the official rules in which the rehearsal's entries replace those of the same key.

    Returns the file to start from, and the keys whose rule was replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    official = files("mlperf_logging.compliance_checker") / f"training_{ruleset}"
    replacing = _own_entries(judged, folder)
    used: set[str] = set()
    for name in ("common.yaml", "closed_common.yaml", f"closed_{judged.stands_for}.yaml"):
        text = (official / name).read_text().replace(f"training_{ruleset}/", f"{folder}/")
        rules = yaml.load(text, Loader=yaml.BaseLoader)
        for index, rule in enumerate(rules):
            key = _key(rule)
            # common.yaml only asks that an evaluation has its position; the accuracy window is the benchmark's
            if key in replacing and (name != "common.yaml" or key != "eval_accuracy"):
                rules[index] = replacing[key]
                used.add(key)
        Path(folder, name).write_text(yaml.safe_dump(rules, sort_keys=False))
    assert used == set(replacing), "the official rules have no such key"
    return Path(folder, "common.yaml"), sorted(used)


def _own_entries(judged: Judged, folder: Path) -> dict[str, Any]:
    values = {
        "name": judged.name,
        "rules": folder,
        "stands_for": judged.stands_for,
        "seq_length": judged.sequence_length,
        "learning_rate": judged.schedule.learning_rates[0].allowed[0],
        "eval_samples": next(iter(judged.evaluation.eval_samples), None),
        "progress": judged.log_keys.progress,
        "target": judged.target,
        "floor": judged.score.floor,
    }
    text = REHEARSAL_RULES.read_text()
    for name, value in values.items():
        if value is not None:
            text = text.replace(f"{{{name}}}", str(value))
    lacking = tuple(f"{{{name}}}" for name, value in values.items() if value is None)
    rules = yaml.load(text, Loader=yaml.BaseLoader)
    return {str(_key(rule)): rule for rule in rules if not any(name in str(rule) for name in lacking)}


def _key(rule: Any) -> str | None:
    return rule["KEY"]["NAME"] if "KEY" in rule else None
