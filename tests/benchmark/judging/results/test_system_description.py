"""System descriptions, good and bad."""

import json
from pathlib import Path

import pytest

from benchmark.config.description_fields import FIELDS, MARK, STATUSES, marked_fields
from benchmark.judging.results.system_description import MOST_BYTES, as_count, read_system
from benchmark.judging.review.rules.naming_rules import NOT_FILLED_IN
from tests.benchmark.judging.review.fixture import system_description


def test_fields_lines_and_accelerators(tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    path.write_text(json.dumps(system_description(), indent=1))
    found = read_system(path)
    assert (found.problem, found.repeated) == (None, ())
    assert (found.string("submitter"), found.string("other_software_stack")) == ("ACME", None)
    assert (found.count("number_of_nodes"), found.accelerators) == (64, 512)
    assert (found.line("submitter"), found.line("division"), found.line("nothing")) == (2, 3, 1)
    path.write_text('{"a": 1, "b": {"c": 1, "c": 2}, "a": 2}')
    assert (read_system(path).repeated, read_system(path).content["a"]) == (("c", "a"), 2)
    counts = [(8, 8), (" 8 ", 8), *((one, None) for one in ("8.0", True, None, "", "1" * 10, 10**400))]
    assert [as_count(value) for value, _ in counts] == [count for _, count in counts]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": ', "not JSON (Expecting value: line 1 column 7 (char 6))"),
        (b"[1]", "a JSON list, not an object"),
        (b"\xff{}", "not UTF-8 (invalid start byte at byte 0)"),
        (b" " * (MOST_BYTES + 1), "1,048,577 bytes, more than 1,048,576"),
    ],
    ids=["cut", "list", "binary", "large"],
)
def test_what_cannot_be_read_is_told(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    path.write_bytes(content)
    found = read_system(path)
    assert (found.content, found.problem, found.accelerators) == ({}, problem, None)
    assert read_system(tmp_path).problem == "folder, not a regular file"


def test_marks_are_found_wherever_they_stand_and_however_they_are_written() -> None:
    content = {
        "deep": {"list": ["x", {"cuda": "12.6, FILL IN: driver"}]},
        "lower": "fill in: it",
        "alone": "FILL IN",
        "dash": "Fill-in: x",
        "FILL IN: name": "x",
        "fine": "refill into the tank",
        "number": 5,
    }
    assert sorted(marked_fields(content)) == ["FILL IN: name", "alone", "dash", "deep.list.1.cuda", "lower"]
    marks = {field.name: field.marked for field in FIELDS}
    assert marked_fields({**marks, "cooling": "air", "other_software_stack": {"a": MARK}}) == [
        *(name for name in marks if name not in ("cooling", "other_software_stack")),
        "other_software_stack.a",
    ]
    assert all(NOT_FILLED_IN.search(mark) for mark in marks.values())
    assert marks["cooling"] == "FILL IN: air or liquid, or leave empty"
    assert all(status in marks["status"] for status in STATUSES)
