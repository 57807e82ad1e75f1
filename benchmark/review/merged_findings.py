"""Merge findings: leave out consequences, keep each finding once per system, and quote its line."""

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.results.mllog import MOST_BYTES, lines_by_number
from benchmark.results.printable import shortened
from benchmark.review.findings import Finding, Rule
from stage.regular_files import read_regular

MOST_QUOTED = 240
"""Largest number of characters quoted of a line; a record of published logs has about 200."""
MOST_ALSO = 100
"""Largest number of places kept for a finding that occurs in many."""
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
"""A number that stands alone, not one inside a name such as opt_adam_beta_1 or result_0.txt."""


def without_consequences(findings: Sequence[Finding], rules: Iterable[Rule[Any]]) -> list[Finding]:
    """Leave out findings that follow from another finding in the same file, by ``Rule.explains``."""
    explaining = {rule.name: rule.explains for rule in rules if rule.explains}
    explained: dict[str, tuple[str, ...]] = {}
    for one in findings:
        explained[one.path] = explained.get(one.path, ()) + explaining.get(one.rule, ())
    return [one for one in findings if one.rule in explaining or not one.rule.startswith(explained[one.path])]


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding for all that differ only in numbers and places; ``also`` has the other places.

    Call this with the findings of one system, so that another system keeps its own.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for one in findings:
        groups.setdefault((one.rule, NUMBER.sub("#", one.found), NUMBER.sub("#", one.due)), []).append(one)
    return [
        replace(first, also=tuple(dict.fromkeys(one.place for one in rest if one.place != first.place))[:MOST_ALSO])
        for first, *rest in groups.values()
    ]


def quoted(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with their lines; every file is read once. The line is empty if the file cannot be read."""
    wanted: dict[str, set[int]] = {}
    for one in findings:
        if one.line is not None:
            wanted.setdefault(one.path, set()).add(one.line)
    lines: dict[str, dict[int, str]] = {}
    for path, numbers in wanted.items():
        with contextlib.suppress(OSError):
            lines[path] = lines_by_number(read_regular(Path(path), MOST_BYTES), numbers)
    return [
        replace(one, text=shortened(lines.get(one.path, {}).get(one.line or 0, ""), MOST_QUOTED)) for one in findings
    ]
