"""A report as text: what ``template/report.html.j2`` lays out."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.report.comparing.previous_round import ChangeRow
from benchmark.report.comparing.system_rows import ConvergenceRow, SystemRow
from benchmark.report.figures import Figure
from benchmark.report.planned_run import PlannedShown


@dataclass(frozen=True)
class KeyFigure:
    name: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class RunRow:
    name: str
    system: int
    """Place of its system on the page."""
    colour: int | None
    """None where there are more groups than colours."""
    started: str
    """Day, UTC."""
    seeds: str
    minutes: str
    tokens: str
    last: str
    """Last log perplexity."""
    status: str
    evaluations: Sequence[object]


@dataclass(frozen=True)
class TimePart:
    name: str
    label: str
    seconds: str
    share: str
    start: float
    """In thousandths of the longest of the page's runs."""
    width: float
    meaning: str


@dataclass(frozen=True)
class RibbonPart:
    """A stretch of wall time; in thousandths of the whole."""

    name: str
    start: float
    width: float
    title: str


@dataclass(frozen=True)
class AttemptLine:
    """One attempt, and what its end cost."""

    name: str
    ended: str
    kind: str
    """good or bad."""
    how: str
    where: str
    steps: str
    lost: str
    cost: str
    hours: str
    decided: str
    said: str


@dataclass(frozen=True)
class AttemptsShown:
    text: str
    """The goodput in a sentence."""
    begin: str
    end: str
    """Of the ribbon."""
    alt: str
    """The ribbon in words."""
    ribbon: Sequence[RibbonPart]
    failures: Sequence[float]
    """Where on the ribbon attempts failed."""
    lines: Sequence[AttemptLine]
    notes: Sequence[str]


@dataclass(frozen=True)
class Times:
    name: str
    text: str
    """All parts in one sentence."""
    total: str
    parts: Sequence[TimePart]
    attempts: AttemptsShown | None
    """None of a log alone."""


@dataclass(frozen=True)
class SlownessRow:
    """Something that slowed a run."""

    run: str
    step: str
    place: str
    found: str


@dataclass(frozen=True)
class Verdict:
    kind: str
    """good, warn or bad."""
    sign: str
    word: str
    text: str
    long: str


@dataclass(frozen=True)
class CheckRow:
    """What one official tool said of one thing."""

    tool: str
    subject: str
    kind: str
    """good or bad."""
    verdict: str
    said: Sequence[str]


@dataclass(frozen=True)
class FindingRow:
    """One finding, once, with all places where it was found."""

    severity: str
    rule: str
    source: str
    places: Sequence[str]
    text: str
    """The line itself."""
    found: str
    due: str
    mend: str
    question: str


@dataclass(frozen=True)
class RunGroup:
    """A table of the section on origin: a row has one value per column, or one for all."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Page:
    title: str
    subject: str
    headline: str
    verdict: Verdict
    key_figures: Sequence[KeyFigure]
    systems: Sequence[SystemRow]
    """Best score first; empty for one system that needs no table."""
    caution: str
    """Beside every MFU."""
    problems: Sequence[tuple[str, str]]
    """Packages that could not be reviewed, and why."""
    changes: Sequence[ChangeRow]
    """Since the previous round."""
    planned: PlannedShown | None
    runs: Sequence[RunRow]
    evaluations: Sequence[tuple[str, Sequence[str]]]
    """Empty where there are too many columns to be read."""
    convergence: Sequence[ConvergenceRow]
    times: Sequence[Times]
    slowness: Sequence[SlownessRow]
    figures: Sequence[Figure]
    mark_kinds: Sequence[str]
    checks: Sequence[CheckRow]
    findings: Sequence[FindingRow]
    origin: Sequence[RunGroup]
    footer: str
