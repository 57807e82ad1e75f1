"""The JSON Schemas of what commands print are those of the code, and what is printed keeps them."""

import json

import pytest

from benchmark.__main__ import main
from tests.house.json_schemas import FOLDER, FORMS, assert_described, problems, schema_of, text_of


@pytest.mark.parametrize("name", FORMS)
def test_the_committed_schemas_are_the_codes(name: str) -> None:
    """``python -m tests.house.json_schemas --write`` writes them anew."""
    assert (FOLDER / f"{name}.json").read_text() == text_of(name)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("llama31_8b --stack nemo --tensor-parallel 2", "plan"),
        ("rehearsal --stack ours", "plan"),
        ("llama31_8b --stack nemo --search", "plan_search"),
    ],
)
def test_a_printed_plan_is_as_its_schema_says(words: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", *words.split(), "--json"])
    assert_described(name, json.loads(capsys.readouterr().out))


def test_what_breaks_a_schema_is_found() -> None:
    schema = schema_of("status")
    attempt = dict.fromkeys(schema["$defs"]["AttemptForm"]["properties"])
    attempt |= {
        "attempt": "0001",
        "kind": "finished",
        "steps": 3,
        "steps_lost": 0,
        "lost_s": 1,
        "seconds": {"queue": 1.5},
    }
    form = schema["$defs"]["AttemptForm"]
    assert problems(attempt, form, schema) == []
    faulty = {**attempt, "steps": 1.5, "seconds": {"queue": "long"}, "color": "red"}
    del faulty["kind"]
    assert set(problems(faulty, form, schema)) == {
        ".kind is missing",
        ".steps: 1.5 is no integer",
        ".seconds.queue: 'long' is no number",
        ".color is not described",
    }
