"""The JSON Schemas of what commands print for scripts: docs/schemas/.

python -m tests.house.json_schemas --write    writes them anew from the types of the code
"""

import json
import sys
from typing import Any

import msgspec

from benchmark.judging.review.review_forms import ReviewForm
from benchmark.planning.run_plan.plan_command import PrintedPlan
from benchmark.planning.run_plan.search_layouts import SearchResult
from benchmark.run_record.status.status_text import StatusForm
from tests.support import REPOSITORY

FOLDER = REPOSITORY / "docs" / "schemas"
FORMS = {"status": StatusForm, "plan": PrintedPlan, "plan_search": SearchResult, "review": ReviewForm}
NULL_FOR_NAN = ("review",)
"""Outputs in which null stands for a number that is not finite."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> dict[str, Any]:
    schema = {"$schema": DIALECT, **msgspec.json.schema(FORMS[name])}
    for part in [schema, *schema["$defs"].values()]:
        if part.get("type") == "object" and "properties" in part:
            part["required"] = list(part["properties"])  # also those that have defaults in the code
            for entry in part["properties"].values():
                entry.pop("default", None)
    return _with_null(schema) if name in NULL_FOR_NAN else schema


def _with_null(part: Any) -> Any:
    """Return the schema with null allowed wherever a number is."""
    if isinstance(part, dict):
        changed = {key: _with_null(value) for key, value in part.items()}
        return changed | ({"type": ["number", "null"]} if part.get("type") == "number" else {})
    return [_with_null(entry) for entry in part] if isinstance(part, list) else part


def text_of(name: str) -> str:
    return json.dumps(schema_of(name), indent=1) + "\n"


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str = "") -> list[str]:
    """Return where a value breaks the schema. A key that the schema does not name is a problem, too."""
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, place)
    if "anyOf" in schema:
        tries = [problems(value, choice, root, place) for choice in schema["anyOf"]]
        return [] if [] in tries else [f"{place}: none of {len(tries)} forms: {tries[0][:1]}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{place}: {value!r} is none of {schema['enum']}"]
    kinds = schema.get("type", [])
    if KINDS[type(value)] not in ([kinds] if isinstance(kinds, str) else kinds or ANY) and not (
        type(value) is int and "number" in kinds
    ):
        return [f"{place}: {value!r} is no {kinds}"]
    if isinstance(value, list):
        firsts = schema.get("prefixItems", [])
        forms = [*firsts, *[schema.get("items") or {}] * (len(value) - len(firsts))]
        return [
            line
            for entry, form in zip(value, forms, strict=False)
            for line in problems(entry, form, root, place + "[]")
        ]
    if isinstance(value, dict):
        known, others = (
            schema.get("properties", {}),
            schema.get("additionalProperties", {} if "properties" not in schema else None),
        )
        lines = [f"{place}.{key} is missing" for key in schema.get("required", ()) if key not in value]
        for key, entry in value.items():
            form = known.get(key, others)
            lines += (
                [f"{place}.{key} is not described"] if form is None else problems(entry, form, root, f"{place}.{key}")
            )
        return lines
    return []


KINDS = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    list: "array",
    dict: "object",
}
ANY = tuple(KINDS.values())


def assert_described(name: str, printed: Any) -> None:
    """Raise AssertionError if what was printed is not as the committed schema says."""
    schema = json.loads((FOLDER / f"{name}.json").read_text())
    assert problems(json.loads(json.dumps(printed)), schema, schema) == []


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    FOLDER.mkdir(exist_ok=True)
    for form in FORMS:
        (FOLDER / f"{form}.json").write_text(text_of(form))
