"""Define the parts of a page: sections of words, tables, charts and bars, which ``template/report.html.j2`` lays out,
and the figures as plain data, which ``template/figures.js`` draws."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from foundation.sizes import duration

NOTHING = "\N{EN DASH}"
CAUTION = "MFU is of the dense BF16 peak, or of the format that a log discloses: FP8 and int8 have a higher peak."
LARGEST_WRITTEN_OUT = 1e15
CLOSE = 5e-5
"""Largest rounding error of a log perplexity with four or more decimals."""
SHORT_MINUTES = 5
"""Minutes below which a run's time is written in seconds, as ``duration`` does; a longer time is written in minutes, as
scores are."""
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str = NOTHING
    kind: str = ""
    """Colour class: good, warn or bad."""
    notes: Sequence[str] = ()
    """Smaller lines below the text."""
    swatch: str = ""
    """CSS class of the coloured square before the text, such as run-0."""
    href: str = ""
    links: Sequence[tuple[str, str]] = ()
    """Text and address of links below the text."""
    order: float | None = None
    """Sorting key of the column, if the text does not give it."""
    bar: float | None = None
    """Length of a bar below the text, in per cent."""
    code: str = ""
    """Line of a log."""
    folded: tuple[str, Sequence[str]] | None = None
    """Summary, and the lines that it folds away."""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    cells: Sequence[Cell]
    id: str = ""
    look: str = ""
    """CSS class: "of" for a heading over the rows that follow, "words" for a line about the row before."""


@dataclass(frozen=True)
class Table:
    """A table. The last cell of a row with fewer cells than the head spans the remaining columns."""

    part: ClassVar[str] = "table"
    label: str
    """Label for people who hear the page."""
    head: Sequence[str]
    rows: Sequence[Row]
    numbers: Collection[int] = ()
    """Numbers of the columns that are flush right."""
    look: str = "cards"
    """CSS classes."""
    title: str = ""
    summary: str = ""
    """Summary of a table that is folded away."""
    sortable: bool = False
    """True if a reader may sort the table by its columns, and filter its rows."""


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    part: ClassVar[str] = "words"
    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Chart:
    """Position of a figure, or of a figure's panels, by its name."""

    part: ClassVar[str] = "chart"
    family: str


@dataclass(frozen=True)
class BarPart:
    """A stretch of a bar, in thousandths of its width."""

    name: str
    start: float
    width: float
    title: str


@dataclass(frozen=True)
class Bar:
    """A bar of coloured stretches, with their meanings below."""

    part: ClassVar[str] = "bar"
    text: str
    """The whole bar in words."""
    parts: Sequence[BarPart]
    title: str = ""
    total: str = ""
    legend: Sequence[tuple[str, str, str, str, str]] = ()
    """Class, label, value, share and meaning of each part."""
    lines: Sequence[float] = ()
    """Positions of lines drawn across the bar."""
    ends: tuple[str, str] = ("", "")
    look: str = ""


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    id: str
    title: str
    parts: Sequence[Table | Words | Chart | Bar]
    grid: str = ""
    """CSS classes that lay its parts out side by side; empty for one below the other."""


@dataclass(frozen=True)
class KeyFigure:
    """A large number at the top of the page."""

    name: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Line:
    """One run's line in a figure."""

    run: int
    x: Sequence[float]
    y: Sequence[float | None]
    """Values; None breaks the line."""

    @property
    def points(self) -> Points:
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if y is not None]


@dataclass(frozen=True)
class AxisMark:
    """An event at ``x``."""

    run: int
    kind: str
    """Kind of event: evaluation, checkpoint or restart."""
    x: float


@dataclass(frozen=True)
class Band:
    """A stretch of the x axis."""

    low: float
    high: float
    label: str


@dataclass(frozen=True)
class Shade:
    """Range of published runs' values at each x."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Figure:
    """One figure: lines over a common x axis."""

    name: str
    title: str
    x_label: str
    x_unit: str
    y_label: str
    lines: Sequence[Line]
    dots: bool = False
    """True if each value is a measurement, to be marked."""
    from_zero: bool = False
    """True if the y axis begins at 0."""
    target: float | None = None
    band: Band | None = None
    marks: Sequence[AxisMark] = field(default_factory=tuple)
    shade: Shade | None = None
    note: str = ""
    family: str = ""
    """Name of the figure that this is a panel of; empty for a whole figure."""
    heading: str = ""
    """Title of the whole figure."""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    """Range of the y axis for all panels; None for that of the lines."""


@dataclass(frozen=True)
class Page:
    """The whole page as text."""

    title: str
    subject: str
    headline: str
    verdict: tuple[str, str, str, str]
    """Colour (good, warn or bad), sign, word and sentence."""
    key_figures: Sequence[KeyFigure]
    sections: Sequence[Section]
    footer: str
    figures: Sequence[Figure]
    runs: Sequence[tuple[str, int, int]]
    """Name, colour and dash of each run in the figures."""


def number(value: float | None, form: str) -> str:
    """Return a number, or a dash if it is not known; a number too large to read is written in powers of ten."""
    if value is None:
        return NOTHING
    return form.format(value) if abs(value) < LARGEST_WRITTEN_OUT else f"{value:.4g}"


def perplexity(value: float | None, target: float | None, form: str = "{:.5f}") -> str:
    """Return a log perplexity, with all its digits if rounding would move it across the target."""
    if value is None or target is None or abs(value - target) > CLOSE:
        return number(value, form)
    text = form.format(value)
    return text if (float(text) <= target) == (value <= target) else repr(value)


def took(minutes: float | None) -> str:
    """Return the time of a run, in the unit that the whole page uses."""
    if minutes is None:
        return NOTHING
    return f"{number(minutes, '{:.2f}')} min" if minutes >= SHORT_MINUTES else duration(60 * minutes)


def accelerator_minutes(minutes: float) -> str:
    """Return a score times the number of accelerators, with a digit for a rehearsal's few."""
    return f"{minutes:,.0f}" if minutes >= 10 else f"{minutes:.2g}"
