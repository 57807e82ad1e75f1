"""What the official tools are given: files as they are, under names that no tool stumbles over; a rehearsal's rules."""

import json
from pathlib import Path

import pytest
import yaml

from benchmark.judging.results.judged import REHEARSED, REHEARSED_LLAMA, Judged
from benchmark.judging.results.subjects import SubmissionPackage
from benchmark.judging.review.tool_inputs import MOST_COPIED, ScratchCopies, rehearsal_rules, safe_name
from tests.benchmark.judging.review.fixture import SYSTEM, write_package


def test_package_is_copied_with_plain_names_records_only_and_statuses_of_today(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    results = package / "results" / SYSTEM / "gpt3"
    description = package / "systems" / f"{SYSTEM}.json"
    content = json.loads(description.read_text())
    description.write_text(json.dumps({**content, "status": "onprem"}))
    log = (results / "result_0.txt").read_bytes()
    (results / "result_0.txt").write_bytes(b"progress: 1 %\r\n" + log)
    with (results / "result_1.txt").open("wb") as file:
        file.write(b":::MLLOG " + b"x" * MOST_COPIED)
    (results / "a[1].txt").write_text("")
    (package / "results" / SYSTEM / "bert").mkdir()
    copies = ScratchCopies(tmp_path / "scratch")
    copies.add_package(SubmissionPackage(package, "4.0.0"))
    there = tmp_path / "scratch" / "results" / SYSTEM
    assert (there / "gpt3" / "result_0.txt").read_bytes() == log
    assert (there / "gpt3" / "result_1.txt").read_bytes() == b""
    assert not (there / "bert").exists()
    assert copies.renamed[str(there / "gpt3" / safe_name("a[1].txt"))] == str(results / "a[1].txt")
    assert json.loads((tmp_path / "scratch/systems" / f"{SYSTEM}.json").read_text())["status"] == "Available on-premise"
    pattern, empty, statuses = sorted(copies.notes)
    assert pattern.startswith("the tools got 'a[1].txt' as _a_1__")
    assert empty.startswith("the tools got 'result_1.txt' empty: ")
    assert statuses == "the tools got today's words for the statuses of round 4.0"


def test_safe_names() -> None:
    assert safe_name("eos_n64-a+b.json") == "eos_n64-a+b.json"
    odd = ["a[1]", "a{1}", "-x.txt", ".hidden", "a b", "ä" * 120]
    names = [safe_name(one) for one in odd]
    assert len(set(names)) == len(odd)
    assert safe_name("a.b[1].json") == f"{safe_name('a.b[1]')}.json"
    assert all(name.isascii() and name[0] == "_" and len(name) < 100 and safe_name(name) == name for name in names)


REPLACED = ["eval_accuracy", "max_sequence_length", "opt_base_learning_rate", "submission_benchmark"]


@pytest.mark.parametrize(
    ("judged", "ruleset"), [(one, ruleset) for one in (REHEARSED, REHEARSED_LLAMA) for ruleset in one.rulesets]
)
def test_few_rules_are_replaced_and_no_other(judged: Judged, ruleset: str, tmp_path: Path) -> None:
    config, replaced = rehearsal_rules(judged, ruleset, tmp_path / "rules")
    assert config == tmp_path / "rules" / "common.yaml"
    assert replaced == sorted([*REPLACED, *(["eval_samples"] if judged.eval_samples else [])])
    text = {path.name: path.read_text() for path in (tmp_path / "rules").iterdir()}
    assert f"training_{ruleset}/" not in "".join(text.values())
    official = yaml.safe_load(text[f"closed_{judged.stands_for}.yaml"])
    rules = {rule["KEY"]["NAME"]: rule["KEY"] for rule in official if "KEY" in rule}
    assert rules["max_sequence_length"]["CHECK"].strip() == "v['value'] == 128"
    assert judged.log_keys.progress in rules["eval_accuracy"]["CHECK"][0]
    assert "0.95" in rules[f"opt_{judged.log_keys.optimizer}_beta_2"]["CHECK"]
