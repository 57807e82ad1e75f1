"""System descriptions; most of it is in the table of damages."""

import json
from pathlib import Path

import pytest

from benchmark.results.system_description import read_system
from benchmark.review.rules import system_rules
from benchmark.review.rules.system_rules import STATUSES, Described
from tests.benchmark.review.fixture import system_description
from tests.benchmark.review.trials.told import rule_tests


def described(folder: Path, ruleset: str = "4.1.0", **fields: object) -> Described:
    path = folder / "system.json"
    path.write_text(json.dumps({**system_description(), **fields}, indent=1))
    return Described(read_system(path), ruleset)


def test_status_is_free_text_before_round_4(tmp_path: Path) -> None:
    for ruleset, told in (("3.0.0", 0), ("3.1.0", 0), ("4.0.0", 1), ("4.1.0", 1)):
        told_as = (system_rules.status, system_rules.status_of_round_4_0)[ruleset == "4.0.0"]
        assert len(list(told_as(described(tmp_path, ruleset, status="onprem")))) == told
    assert list(system_rules.status(described(tmp_path, "4.0.0", status="onprem"))) == []
    for status in STATUSES:
        assert list(system_rules.status(described(tmp_path, status=status))) == []


def test_names_left_empty_are_a_warning(tmp_path: Path) -> None:
    (at,) = system_rules.named(described(tmp_path, framework=" "))
    assert (at.line, at.found, at.due) == (31, "framework ' '", "a name")
    assert list(system_rules.named(described(tmp_path))) == []


@pytest.mark.parametrize(
    ("value", "told"), [("TODO", 1), ("fill in", 1), ("<name>", 1), ("ORG_PLACEHOLDER", 1), ("", 0), ("todolist", 0)]
)
def test_placeholders(value: str, told: int, tmp_path: Path) -> None:
    assert len(list(system_rules.filled_in(described(tmp_path, cooling=value)))) == told


@pytest.mark.parametrize("value", [["a", {"b": "TODO"}], {"FILL IN: cuda": ""}, {"x": {"y": ["<version>"]}}])
def test_placeholders_below_the_first_level(value: object, tmp_path: Path) -> None:
    assert len(list(system_rules.filled_in(described(tmp_path, other_software_stack=value)))) == 1


@pytest.mark.parametrize(("value", "told"), [("0", 1), (0, 1), (-8, 1), ("2000000", 1), ("8", 0), ("x", 0)])
def test_counts_of_machines_that_cannot_be(value: object, told: int, tmp_path: Path) -> None:
    assert len(list(system_rules.positive(described(tmp_path, number_of_nodes=value)))) == told


def test_description_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    (tmp_path / "system.json").write_text("[]")
    subject = Described(read_system(tmp_path / "system.json"), "4.1.0")
    assert [at.found for at in system_rules.readable(subject)] == ["a JSON list, not an object"]
    assert list(system_rules.fields(subject)) == []


FOUND = (
    ("system.available", "description: status available, notes say preview", "sw_notes 'preview'"),
    ("system.filled_in", "description: framework is what a template left there", "${FRAMEWORK}"),
    ("system.named", "description: framework N/A", "framework 'N/A'"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
