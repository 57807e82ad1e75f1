"""The official compliance checker on one log: unmodified for gpt3, with four rules replaced for the rehearsal."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

RULESETS = ("3.0.0", "3.1.0", "4.0.0", "4.1.0")
"""Those with gpt3."""
NEWEST_RULESET = RULESETS[-1]
REHEARSAL_RULES = Path(__file__).with_name("rehearsal_rules.yaml")
REHEARSAL_NAME = re.compile(rb'"key": "submission_benchmark", "value": "gpt3_rehearsal"')
TIMEOUT_S = 300


@dataclass(frozen=True)
class Verdict:
    """What the checker said of one file."""

    path: str
    passed: bool
    ruleset: str
    replaced_rules: list[str]
    """Keys whose official rule does not apply to the rehearsal; empty for gpt3."""
    complaints: list[str]
    """The checker's own lines."""


def check_compliance(path: Path, ruleset: str) -> Verdict:
    """Run the official checker in a process of its own; passed only if it says SUCCESS and exits with 0."""
    rehearsal = REHEARSAL_NAME.search(path.read_bytes()) is not None
    if not rehearsal:
        return _run(path, ruleset, None, [])
    with _rehearsal_rules(ruleset) as (config, replaced):
        return _run(path, ruleset, config, replaced)


def _run(path: Path, ruleset: str, config: Path | None, replaced: list[str]) -> Verdict:
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", ruleset]
    command += ["--log_output", "/dev/null", *(["--config", str(config)] if config else []), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    passed = done.returncode == 0 and any(line.endswith("SUCCESS") for line in lines)
    noise = ("INFO", "**")
    complaints = [] if passed else [line for line in lines if not line.startswith(noise)]
    return Verdict(str(path), passed, ruleset, replaced, complaints)


@contextmanager
def _rehearsal_rules(ruleset: str) -> Iterator[tuple[Path, list[str]]]:
    """A copy of the official rule files in which the rehearsal's entries replace those of the same key."""
    official = files("mlperf_logging.compliance_checker") / f"training_{ruleset}"
    with tempfile.TemporaryDirectory() as folder:
        replacing = _by_key(REHEARSAL_RULES.read_text().replace("{rules}", folder))
        used: set[str] = set()
        for name in ("common.yaml", "closed_common.yaml", "closed_gpt3.yaml"):
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
        yield Path(folder, "common.yaml"), sorted(used)


def _by_key(text: str) -> dict[str, Any]:
    return {str(_key(rule)): rule for rule in yaml.load(text, Loader=yaml.BaseLoader)}


def _key(rule: Any) -> str | None:
    return rule["KEY"]["NAME"] if "KEY" in rule else None
