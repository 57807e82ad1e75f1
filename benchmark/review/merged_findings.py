"""Findings made fit to act on: causes without their consequences, each once per system, with the line it is about."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmark.results.mllog import MOST_BYTES, lines_by_number
from benchmark.results.printable import shortened
from benchmark.review.findings import Finding, Rule
from stage.regular_files import read_regular

MOST_QUOTED = 240
"""Characters of a line; a record of published logs has about 200."""
MOST_ALSO = 100
"""Places kept of a finding that stands in many."""
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")
"""A number of its own, not a part of a name such as opt_adam_beta_1 or result_0.txt."""


def without_consequences(findings: Sequence[Finding], rules: Iterable[Rule[Any]]) -> list[Finding]:
    """Leave out what follows from another finding in the same file: ``Rule.explains``."""
    explaining = {rule.name: rule.explains for rule in rules if rule.explains}
    explained: dict[str, tuple[str, ...]] = {}
    for finding in findings:
        names = explaining.get(finding.rule)
        if names:
            explained[finding.path] = (*explained.get(finding.path, ()), *names)
    return [
        finding
        for finding in findings
        if finding.rule in explaining or not finding.rule.startswith(explained.get(finding.path, ()) or ("\0",))
    ]


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for what is the same but for numbers and places; ``also`` has the other places.

    To be called with the findings of one system: another system's stand for themselves.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        words = NUMBER.sub("#", finding.found), NUMBER.sub("#", finding.due)
        groups.setdefault((finding.rule, *words), []).append(finding)
    return [_one(same) for same in groups.values()]


def _one(same: Sequence[Finding]) -> Finding:
    first = same[0]
    places = dict.fromkeys(finding.place for finding in same[1:] if finding.place != first.place)
    return replace(first, also=tuple(places)[:MOST_ALSO])


def quoted(findings: Sequence[Finding]) -> list[Finding]:
    """With the line each is about, every file read once; without it where there is none that can be read."""
    wanted: dict[str, set[int]] = {}
    for finding in findings:
        if finding.line is not None:
            wanted.setdefault(finding.path, set()).add(finding.line)
    lines = {path: _lines(Path(path), numbers) for path, numbers in wanted.items()}
    return [replace(one, text=lines.get(one.path, {}).get(one.line or 0, "")) for one in findings]


def _lines(path: Path, numbers: set[int]) -> Mapping[int, str]:
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError:
        return {}
    return {number: shortened(line, MOST_QUOTED) for number, line in lines_by_number(content, numbers).items()}
