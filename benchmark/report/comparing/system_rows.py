"""The systems of a page, each with its own score: a leaderboard, and what it says of the convergence test."""

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from benchmark.report.page_numbers import NOTHING, number
from benchmark.results.convergence import Convergence, ReferencePoint
from benchmark.results.durations import duration
from benchmark.results.printable import shortened
from benchmark.results_table.row_facts import SystemFacts

KINDS = {"rejected": "bad", "acceptable with questions": "warn", "acceptable": "good"}
"""How a verdict is coloured."""
MOST_FIELD = 400
MANY_TOKENS = 10_000_000
LEFT_OUT = ("submitter", "division", "status", "system_name")
"""Fields of a description that stand in the table of systems."""


@dataclass(frozen=True)
class RunLink:
    name: str
    href: str


@dataclass(frozen=True)
class SystemRow:
    """One system of a page."""

    place: int
    name: str
    colour: int | None
    """None where there are more systems than colours."""
    submitter: str
    division: str
    availability: str
    devices: str
    batch: str
    date: str
    score: str
    how: str
    """Of the score: measured minutes and factor, or why there is none."""
    speed: str
    """Tokens/s of an accelerator."""
    mfu: str
    init: str
    convergence: str
    verdict: str
    kind: str
    """good, warn or bad."""
    errors: int
    questions: int
    runs: Sequence[RunLink]
    minutes: float | None
    """To sort by."""


@dataclass(frozen=True)
class ConvergenceRow:
    """How a system stands against the reference runs."""

    name: str
    batch: str
    tokens: str
    median: str
    compared: str
    mean: str
    least: str
    factor: str
    standing: str
    kind: str


def system_rows(
    systems: Sequence[SystemFacts], names: Sequence[str], colours: int, beside: Path | None
) -> list[SystemRow]:
    """Best score first, those without a score last. ``beside``: the folder from which links lead to the logs."""
    rows = [
        _row(place, facts, name, place if len(systems) <= colours else None, beside)
        for place, (facts, name) in enumerate(zip(systems, names, strict=True))
    ]
    return sorted(rows, key=lambda row: (row.minutes is None, row.minutes or 0.0))


def _row(place: int, facts: SystemFacts, name: str, colour: int | None, beside: Path | None) -> SystemRow:
    score, middle = facts.score, facts.middle
    errors, questions = len(facts.findings("error")), len(facts.findings("warning"))
    verdict = (
        "rejected" if errors or not facts.subject.passed else "acceptable with questions" if questions else "acceptable"
    )
    devices = (
        None if score.accelerators is None else f"{score.accelerators:,} x {shortened(score.accelerator or '?', 60)}"
    )
    return SystemRow(
        place=place,
        name=name,
        colour=colour,
        submitter=shortened(facts.package or score.submitter or NOTHING, 60),
        division=shortened(str(facts.described.get("division") or _first(facts, "division") or NOTHING), 20),
        availability=shortened(str(facts.described.get("status") or _first(facts, "status_class") or NOTHING), 60),
        devices=devices or NOTHING,
        batch=number(score.batch_size, "{:,.0f}"),
        date=day_of(None if middle is None else middle.run_start_ms),
        score=number(score.minutes, "{:.2f}"),
        how=_how(facts),
        speed=number(score.tokens_per_s_per_accelerator, "{:,.0f}"),
        mfu=number(score.mfu, "{:.1%}"),
        init=NOTHING if middle is None or middle.init_s is None else duration(middle.init_s),
        convergence=facts.result_set.convergence.standing,
        verdict=verdict,
        kind=KINDS[verdict],
        errors=errors,
        questions=questions,
        runs=[RunLink(path.name, link(path, beside)) for path in facts.result_set.files],
        minutes=score.minutes,
    )


def _first(facts: SystemFacts, name: str) -> str | None:
    return next((value for run in facts.result_set.runs if (value := getattr(run, name))), None)


def _how(facts: SystemFacts) -> str:
    score = facts.score
    if score.minutes is None or score.measured_minutes is None:
        return score.why_no_score or NOTHING
    times = sorted(run.minutes for run in score.runs if run.minutes is not None)
    spread = f"{number(times[0], '{:.2f}')} to {number(times[-1], '{:.2f}')}"
    return spread if score.factor == 1 else f"{score.measured_minutes:.2f} x {score.factor:.4f}; {spread}"


def day_of(time_ms: float | None) -> str:
    """The UTC day of a time, or a dash."""
    if time_ms is None:
        return NOTHING
    try:
        return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return NOTHING


def link(path: Path, beside: Path | None) -> str:
    """A relative reference from a folder to a file, every odd character encoded; empty for no folder."""
    return "" if beside is None else "./" + quote(os.path.relpath(path, beside), errors="surrogateescape")


def convergence_rows(systems: Sequence[SystemFacts], names: Sequence[str]) -> list[ConvergenceRow]:
    """Of the systems that are tested: three runs in the closed division."""
    return [
        _convergence(facts.result_set.convergence, name)
        for facts, name in zip(systems, names, strict=True)
        if facts.result_set.convergence.standing != "not tested"
    ]


def _convergence(result: Convergence, name: str) -> ConvergenceRow:
    point: ReferencePoint | None = result.point
    kind = {"passes": "good", "passes, scaled": "good", "fails": "bad"}.get(result.standing, "warn")
    return ConvergenceRow(
        name,
        number(result.batch_size, "{:,.0f}"),
        " ".join(map(_tokens, result.tokens)),
        _tokens(result.median),
        result.why,
        _tokens(None if point is None else point.mean),
        _tokens(None if point is None else point.least),
        f"{result.factor:.4f}",
        result.standing,
        kind,
    )


def _tokens(value: float | None) -> str:
    """In millions where they are many."""
    return number(value, "{:,.0f}") if value is None or value < MANY_TOKENS else number(value / 1e6, "{:,.1f}M")


def description_rows(systems: Sequence[SystemFacts]) -> list[tuple[str, list[str]]]:
    """What system descriptions say, field by field; those that all leave empty are left out."""
    contents = [facts.described for facts in systems]
    names = dict.fromkeys(str(name) for content in contents for name in content if name not in LEFT_OUT)
    rows = [(shortened(name, 60), [_field(content.get(name)) for content in contents]) for name in names]
    return [(name.replace("_", " "), values) for name, values in rows if any(value != NOTHING for value in values)]


def _field(value: object) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{name} {one}" for name, one in value.items())
    return NOTHING if value in (None, "") else shortened(str(value), MOST_FIELD)
