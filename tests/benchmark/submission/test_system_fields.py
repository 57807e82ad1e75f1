"""Fields of the system description."""

from benchmark.review.rules.naming_rules import NOT_FILLED_IN
from benchmark.review.rules.system_rules import REQUIRED, STATUSES
from benchmark.submission.system_fields import FIELDS, MARK, marked_fields


def test_fields_are_those_that_review_requires_in_its_order() -> None:
    assert [field.name for field in FIELDS] == list(REQUIRED)
    assert {field.name for field in FIELDS if field.optional} >= {"hw_notes", "sw_notes", "cooling"}


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


def test_marks_are_found_and_refused_by_review() -> None:
    marks = {field.name: field.marked for field in FIELDS}
    assert marked_fields({**marks, "cooling": "air", "other_software_stack": {"a": MARK}}) == [
        *(name for name in marks if name not in ("cooling", "other_software_stack")),
        "other_software_stack.a",
    ]
    assert all(NOT_FILLED_IN.search(mark) for mark in marks.values())
    assert marks["cooling"] == "FILL IN: air or liquid, or leave empty"
    assert all(status in marks["status"] for status in STATUSES)
