"""Two results side by side: ``review --compare A B``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmark.results.printable import shortened
from benchmark.results.score import Score, middle_run
from benchmark.results.subjects import ResultSet
from benchmark.review.verdict import SubjectReview
from stage.errors import InputError

MOST_CELL = 38
"""Characters of a cell: three columns fit 120."""
Side = tuple[ResultSet, Score]


@dataclass(frozen=True)
class ComparedFigure:
    """One line of the comparison."""

    title: str
    value: Callable[[Side], Any]
    form: str = "{}"
    """For a number."""


def _of_log(key: str) -> Callable[[Side], Any]:
    return lambda side: side[0].runs[0].log.value(key)


def _of_score(name: str) -> Callable[[Side], Any]:
    return lambda side: getattr(side[1], name)


def _of_middle_run(name: str) -> Callable[[Side], Any]:
    def value(side: Side) -> Any:
        middle = middle_run(side[1].runs)
        return None if middle is None else getattr(middle, name)

    return value


def _minutes(side: Side) -> str:
    return " ".join("-" if run.minutes is None else f"{run.minutes:.2f}" for run in side[1].runs)


ROWS = (
    ComparedFigure("submitter", _of_score("submitter")),
    ComparedFigure("platform", _of_score("platform")),
    ComparedFigure("accelerators", _of_score("accelerators"), "{:,}"),
    ComparedFigure("accelerator", _of_score("accelerator")),
    ComparedFigure("ruleset", lambda side: side[0].ruleset),
    ComparedFigure("batch size", _of_log("global_batch_size"), "{:,}"),
    ComparedFigure("accumulation steps", _of_log("gradient_accumulation_steps"), "{:,}"),
    ComparedFigure("base learning rate", _of_log("opt_base_learning_rate"), "{:g}"),
    ComparedFigure("warm-up steps", _of_log("opt_learning_rate_warmup_steps"), "{:,}"),
    ComparedFigure("decay steps", _of_log("opt_learning_rate_decay_steps"), "{:,}"),
    ComparedFigure("score, minutes", _of_score("minutes"), "{:.2f}"),
    ComparedFigure("measured, minutes", _of_score("measured_minutes"), "{:.2f}"),
    ComparedFigure("factor of the score", _of_score("factor"), "{:.4f}"),
    ComparedFigure("factor of the reference points", _of_score("reference_factor"), "{:.4f}"),
    ComparedFigure("minutes of each run", _minutes),
    ComparedFigure("convergence", lambda side: side[0].convergence.standing),
    ComparedFigure("tokens", _of_middle_run("tokens"), "{:,.0f}"),
    ComparedFigure("evaluations", _of_middle_run("evaluations"), "{:,}"),
    ComparedFigure("last log perplexity", _of_middle_run("last_log_perplexity"), "{:.5f}"),
    ComparedFigure("init, s", _of_middle_run("init_s"), "{:,.0f}"),
    ComparedFigure("share of init", _of_middle_run("init_share"), "{:.1%}"),
    ComparedFigure("step, s", _of_middle_run("step_s"), "{:.3f}"),
    ComparedFigure("share of evaluation", _of_middle_run("evaluation_share"), "{:.1%}"),
    ComparedFigure("tokens/s", _of_middle_run("tokens_per_s"), "{:,.0f}"),
    ComparedFigure("tokens/s per accelerator", _of_score("tokens_per_s_per_accelerator"), "{:,.1f}"),
    ComparedFigure("TFLOP/s per accelerator", _of_score("tflops_per_accelerator"), "{:,.1f}"),
    ComparedFigure("MFU (BF16, dense)", _of_score("mfu"), "{:.1%}"),
)


def side_of(subject: SubjectReview, path: Path) -> Side:
    """The one result of a subject. Raises InputError where there are several."""
    if len(subject.sets) != 1:
        names = ", ".join(one.name for one in subject.sets) or "none"
        raise InputError(f"{path}: {len(subject.sets)} results ({names}); give the folder of one: results/SYSTEM/gpt3")
    return subject.sets[0], subject.scores[0]


def compared(left: Side, right: Side) -> Iterator[tuple[str, str, str, str]]:
    """Title, both values, and the right one over the left one where both are numbers."""
    for row in ROWS:
        values = [row.value(side) for side in (left, right)]
        shown = [_shown(value, row.form) for value in values]
        if any(value is not None for value in values):
            yield row.title, shown[0], shown[1], _ratio(*values)


def comparison(left: Side, right: Side) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    for title in (f"A: {left[1].name}", f"B: {right[1].name}", "B / A"):
        table.add_column(Text(shortened(title, MOST_CELL)), justify="right")
    for cells in compared(left, right):
        table.add_row(*(Text(shortened(cell, MOST_CELL)) for cell in cells))
    return table


def _shown(value: Any, form: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return form.format(value) if number else repr(value)[:40]


def _ratio(left: Any, right: Any) -> str:
    if isinstance(left, int | float) and isinstance(right, int | float) and left and right:
        return f"{right / left:.3f}"
    return ""
