"""A review for people: the verdict first, then the result, then what to mend."""

import os
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmark.results.convergence import Convergence
from benchmark.results.printable import printable, shortened
from benchmark.results.score import RunScore, Score
from benchmark.review.findings import Finding
from benchmark.review.verdict import SEVERITIES, WORST_FIRST, Review, SubjectReview, Verdict

VERDICT_STYLES: Mapping[Verdict, str] = {
    "acceptable": "bold green",
    "acceptable with questions": "bold yellow",
    "rejected": "bold red",
}
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
WIDTH_WITHOUT_TERMINAL, NARROWEST = 120, 120
NARROWEST_TEXT = 40
RUN_COLUMNS = "seed status minutes tokens evals last init_s init step_s eval restarts".split()
MOST_OF_A_RULE = 5
"""Findings of one rule that are shown; --json has all."""
MOST_CELL = 30
"""Characters of a cell."""
MOST_PLACES = 4
"""Of one finding, besides the first."""


def review_console() -> Console:
    """Standard output; wide enough for the tables, and wider where it is no terminal, so that lines can be searched."""
    plain = Console(highlight=False)
    width = max(plain.width, NARROWEST) if plain.is_terminal else WIDTH_WITHOUT_TERMINAL
    return Console(highlight=False, width=width)


def print_review(review: Review, out: Console) -> None:
    """The verdict over all first."""
    if len(review.subjects) > 1:
        counts = Counter(subject.verdict for subject in review.subjects)
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in WORST_FIRST if counts[verdict])
        words = f"{review.verdict.upper()}  of {len(review.subjects)} results {told}, in {review.seconds:.1f} s"
        _say(out, words, VERDICT_STYLES[review.verdict])
        out.print()
    for subject in review.subjects:
        _print_subject(subject, out)


def _print_subject(subject: SubjectReview, out: Console) -> None:
    counts = ", ".join(_count(len(subject.of(kind)), kind) for kind in SEVERITIES if subject.of(kind))
    files = sum(len(one.files) for one in subject.sets)
    what = "package" if subject.kind == "package" else _count(files, "run")
    heading = printable(f"{subject.verdict.upper()}  {_below_here(subject.path)}")
    out.print(Text(heading, VERDICT_STYLES[subject.verdict]), soft_wrap=True)  # a path is not folded
    _say(out, f"  {what}, ruleset {subject.ruleset}" + (f": {counts}" if counts else ""), "bold")
    _print_findings(subject.of("error"), subject, out)
    _print_official(subject, out)
    for score, one in zip(subject.scores, subject.sets, strict=True):
        _print_score(score, one.convergence, out)
    _print_findings([*subject.of("warning"), *subject.of("note")], subject, out)
    out.print()


def _print_official(subject: SubjectReview, out: Console) -> None:
    for check in subject.checks:
        if not check.passed:
            _say(out, f"  {check.outcome}: {check.tool}, {subject.near(check.subject)}", "red")
            for complaint in check.complaints:
                _say(out, f"           {subject.near(complaint)}")
    tools = dict.fromkeys(check.tool for check in subject.checks)
    words = []
    for tool in tools:
        mine = [check for check in subject.checks if check.tool == tool]
        words.append(f"{tool} {sum(check.outcome == 'passed' for check in mine)}/{len(mine)}")
    if words:
        _say(out, f"  official checkers that ran and passed: {', '.join(words)}")
    for why, names in subject.declined.items():
        _say(out, f"  nothing to check for {', '.join(names)}: {why}")
    for note in dict.fromkeys(f"{check.tool}: {note}" for check in subject.checks for note in check.notes):
        _say(out, f"  {note}", "cyan")


def _print_score(score: Score, convergence: Convergence, out: Console) -> None:
    _say(out, f"  {score.name}: {_score(score)}", "bold")
    for line in (_speed(score), _convergence(convergence)):
        if line:
            _say(out, f"  {line}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("  run")
    for title in RUN_COLUMNS:
        table.add_column(title.replace("_", " "), justify="right")
    for run in score.runs:
        cells = (shortened(cell, MOST_CELL) for cell in (Path(run.path).name, *_cells(run)))
        table.add_row(*(Text(f"  {cell}" if place == 0 else cell) for place, cell in enumerate(cells)))
    out.print(table)


def _score(score: Score) -> str:
    if score.minutes is None or score.measured_minutes is None:
        return f"no score: {score.why_no_score}"
    if score.factor == 1:
        return f"{score.minutes:.2f} minutes"
    return f"{score.minutes:.2f} minutes = {score.measured_minutes:.2f} measured x {score.factor:.4f}"


def _speed(score: Score) -> str:
    if score.tokens_per_s_per_accelerator is None:
        return ""
    words = f"{score.accelerators} x {score.accelerator}: {score.tokens_per_s_per_accelerator:,.0f} tokens/s"
    words += f", {score.tflops_per_accelerator:,.3g} TFLOP/s each"
    if score.mfu is None:
        return words
    return f"{words}, MFU {score.mfu:.1%} of {score.peak_tflops:g} (BF16, dense)"


def _convergence(result: Convergence) -> str:
    """Where the result stands beside the reference point that it is compared with, in tokens."""
    if result.standing == "not tested":
        return f"convergence: not tested, {result.why}"
    words = f"convergence: {result.standing}" + (f" by {result.factor:.4f}" if result.factor > 1 else "")
    if result.median is not None and result.point is not None:
        words += f": median {result.median:,.0f} tokens; mean {result.point.mean:,.0f}, from {result.point.least:,.0f}"
    repaired = "" if result.repaired is None else f"; without void reference data: {result.repaired}"
    return f"{words} ({result.why}){repaired}"


def _cells(run: RunScore) -> Iterator[str]:
    yield str(run.seed) if run.seed is not None else "-"
    yield run.status or "-"
    for value, form in (
        (run.minutes, "{:.2f}"),
        (run.tokens, "{:,.0f}"),
        (run.evaluations, "{}"),
        (run.last_log_perplexity, "{:.5f}"),
        (run.init_s, "{:,.0f}"),
        (run.init_share, "{:.1%}"),
        (run.step_s, "{:.3f}"),
        (run.evaluation_share, "{:.1%}"),
    ):
        yield "-" if value is None else form.format(value)
    yield str(run.restarts)


def _print_findings(findings: Sequence[Finding], subject: SubjectReview, out: Console) -> None:
    """Each with its places, the line, what is expected, what to do or ask, and the rule; the first ones of a rule."""
    shown: dict[str, int] = {}
    for finding in findings:
        count = shown[finding.rule] = shown.get(finding.rule, 0) + 1
        if count <= MOST_OF_A_RULE:
            _print_finding(finding, subject, out)
    for rule, count in shown.items():
        if count > MOST_OF_A_RULE:
            severity = next(finding.severity for finding in findings if finding.rule == rule)
            _say(out, f"  {severity:8} {rule}: {count - MOST_OF_A_RULE} more; --json has all", COLOURS[severity])


def _print_finding(finding: Finding, subject: SubjectReview, out: Console) -> None:
    places = [subject.near(place) for place in (finding.place, *finding.also[:MOST_PLACES])]
    if len(finding.also) > MOST_PLACES:
        places.append(f"and {len(finding.also) - MOST_PLACES} more")
    told = (
        ("", f"{', '.join(places)}: {finding.found}; expected: {finding.due}"),
        ("line", finding.text),
        ("to mend", finding.mend),
        ("question", finding.question),
        ("rule", f"{finding.rule}: {finding.rules}; {finding.source}"),
    )
    for title, words in told:
        if words:
            first = f"  {finding.severity:8} " if not title else f"           {title}: "
            style = COLOURS[finding.severity] if not title else ""
            _say(out, f"{first}{words}", style, indent=11 if not title else 13, whole_words=False)


def _say(out: Console, text: str, style: str = "", indent: int = 4, whole_words: bool = True) -> None:
    """Text as it is: no markup, no control characters from a stranger's file; folded to the console's width."""
    lines = textwrap.wrap(
        printable(text),
        max(out.width, NARROWEST_TEXT),
        subsequent_indent=" " * indent,
        break_long_words=not whole_words,
        break_on_hyphens=False,
    )
    for line in lines:
        out.print(Text(line, style=style), soft_wrap=True)


def _below_here(path: str) -> str:
    """Paths below the current folder without it."""
    return path.replace(f"{Path.cwd()}{os.sep}", "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
