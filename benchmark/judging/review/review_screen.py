"""Print ``python -m benchmark review`` for people: several results get a leaderboard first, then each its verdict and
findings."""

import json
import os
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from benchmark.judging.results.convergence import USUAL_REFERENCES, Convergence, ReferenceChoice
from benchmark.judging.results.judged import Judged
from benchmark.judging.results.score import RunScore, Score
from benchmark.judging.results.subjects import ResultSet
from benchmark.judging.review.findings import Finding
from benchmark.judging.review.review_json import review_as_json
from benchmark.judging.review.verdict import SEVERITIES, WORST_FIRST, Review, SubjectReview, review
from foundation.errors import InputError
from foundation.outputs.publish import write_text
from foundation.plain_text import printable, screen_width, shortened, table_text
from foundation.sizes import significant

VERDICT_STYLES = {"acceptable": "bold green", "acceptable with questions": "bold yellow", "rejected": "bold red"}
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
BOARD = ("rank", "benchmark", "system", "devices", "minutes", "verdict")
RUN_COLUMNS = ("run", *"seed status minutes tokens evals last init_s init step_s eval restarts".split())
ABOVE = {0: "{}", 1: "seed {}", 2: "{}"}
"""Columns of a run that stand above the others on a narrow screen."""
MOST_OF_A_RULE = 5
"""Number of findings of one rule that are shown; --json has all."""
MOST_CELL = 30
"""Largest number of characters in a cell."""
MOST_PLACES = 4
"""Number of places shown for one finding besides the first."""


def review_and_print(
    paths: Sequence[Path],
    ruleset: str | None = None,
    json_file: Path | None = None,
    page: Callable[[Review], str] | None = None,
    references: ReferenceChoice = USUAL_REFERENCES,
    brief: bool = False,
) -> int:
    """Review results and packages; print the review and write it to ``json_file``. The function ``page`` makes a page
    of it and returns one line about the page. ``brief``: print verdicts and errors alone.

    Returns the exit status: 0 if everything passed, otherwise 1. Raises InputError for input that cannot be reviewed.
    """
    if not paths:
        raise InputError("nothing to review; give result files, a run folder or a package (see --help)")
    result = review(paths, ruleset, references)
    if brief:
        print_verdicts(result, review_console())
    else:
        print_review(result, review_console())
    if json_file is not None:
        write_text(json_file, json.dumps(review_as_json(result), indent=1) + "\n")
    if page is not None:
        print(page(result))
    return 0 if result.passed else 1


def review_console() -> Console:
    """Return standard output, as wide as the screen."""
    return Console(highlight=False, width=screen_width())


def print_review(result: Review, out: Console) -> None:
    if len(result.subjects) > 1:
        counts = Counter(subject.verdict for subject in result.subjects)
        summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in WORST_FIRST if counts[verdict])
        words = f"{result.verdict.upper()}  of {len(result.subjects)} results {summary}, in {result.seconds:.1f} s"
        _say(out, words, VERDICT_STYLES[result.verdict])
    if sum(len(subject.sets) for subject in result.subjects) > 1:
        for table in (leaderboard(result), _references(result)):
            _print_table(out, f"\n{table}\n")
    for subject in result.subjects:
        _print_subject(subject, out)
    if result.sandbox:
        _say(out, f"official checkers: {result.sandbox}")


def print_verdicts(result: Review, out: Console) -> None:
    """Print a line for each result with its verdict, and below it a line for each error."""
    for subject in result.subjects:
        out.print(Text(_heading(subject) + _counts(subject, ": "), VERDICT_STYLES[subject.verdict]), soft_wrap=True)
        for check in subject.checks:
            if not check.passed:
                words = f"  {check.outcome}: {check.tool}, {subject.near(check.subject)}"
                _print_table(out, f"{words}: {'; '.join(map(subject.near, check.complaints[:1]))}".rstrip(": "))
        for finding in subject.of("error"):
            location = subject.near(finding.location)
            _print_table(out, f"  error: {location}: {finding.observed}; expected: {finding.expected}")


def leaderboard(result: Review) -> str:
    """Return a row per system, the best score of each benchmark first; systems without a score have no rank."""
    systems = [
        (score, subject, results)
        for subject in result.subjects
        for score, results in zip(subject.scores, subject.sets, strict=True)
    ]
    systems.sort(key=lambda row: (row[0].benchmark, row[0].minutes is None, row[0].minutes or 0))
    rows, ranked = [], Counter[str]()
    for score, subject, results in systems:
        ranked[score.benchmark] += 1
        devices = (
            f"{score.accelerators:,} x {shortened(score.accelerator or '?', MOST_CELL)}" if score.accelerators else "-"
        )
        package = f"{Path(subject.path).name}/" if subject.kind == "package" else ""
        name = shortened(f"{package}{score.name}", 2 * MOST_CELL)
        minutes = "-" if score.minutes is None else f"{score.minutes:.2f}"
        rank = "-" if score.minutes is None else f"{ranked[score.benchmark]}"
        rows.append((rank, score.benchmark, name, devices, minutes, subject.verdict_of(results)))
    return table_text(BOARD, rows, right=(0, 4))


def _references(result: Review) -> str:
    """Return the reference points that all results are compared with, a row for each benchmark, ruleset and batch
    size."""
    rows = {
        (
            f"{results.judged.name} {results.ruleset}",
            f"{point.batch_size:,.0f}",
            f"{results.judged.count(point.mean)} {results.judged.unit}",
            results.judged.count(point.least),
        ): None
        for subject in result.subjects
        for results in subject.sets
        for point in results.convergence.points
    }
    return table_text(("reference points", "batch size", "mean", "least"), sorted(rows), right=(1, 2, 3))


def _print_subject(subject: SubjectReview, out: Console) -> None:
    contents = (
        "package" if subject.kind == "package" else _count(sum(len(results.files) for results in subject.sets), "run")
    )
    out.print(Text(_heading(subject), VERDICT_STYLES[subject.verdict]), soft_wrap=True)  # a path is not folded
    _say(out, f"  {contents}, ruleset {subject.ruleset}{_counts(subject, ': ')}", "bold")
    _print_findings(subject.of("error"), subject, out)
    _print_official(subject, out)
    for score, results in zip(subject.scores, subject.sets, strict=True):
        _print_score(score, results, out)
    _print_findings([*subject.of("warning"), *subject.of("note")], subject, out)
    out.print()


def _heading(subject: SubjectReview) -> str:
    return printable(f"{subject.verdict.upper()}  {subject.path.replace(f'{Path.cwd()}{os.sep}', '')}")


def _counts(subject: SubjectReview, before: str) -> str:
    """Return the numbers of errors, warnings and notes; empty if there are none."""
    counts = ", ".join(_count(len(subject.of(kind)), kind) for kind in SEVERITIES if subject.of(kind))
    return f"{before}{counts}" if counts else ""


def _print_official(subject: SubjectReview, out: Console) -> None:
    counts: dict[str, list[bool]] = {}
    printed_lines: set[str] = set()
    """Lines of tools that consist of each other, each printed once."""
    for check in subject.checks:
        counts.setdefault(check.tool, []).append(check.outcome == "passed")
        if not check.passed:
            path = subject.near(check.subject)
            _say(out, f"  {check.outcome}: {check.tool}{'' if path == '.' else f', {path}'}", "red")
            lines = [subject.near(complaint) for complaint in check.complaints]
            for line in [line for line in lines if line not in printed_lines] or ["for the same reason"]:
                _say(out, f"           {line}", indent=13)
            printed_lines.update(lines)
    if counts:
        words = ", ".join(f"{tool} {sum(passed)}/{len(passed)}" for tool, passed in counts.items())
        _say(out, f"  official checkers that ran and passed: {words}")
    for why in dict.fromkeys(subject.declined.values()):
        tools = ", ".join(tool for tool, reason in subject.declined.items() if reason == why)
        _say(out, f"  nothing to check for {tools}: {why}")
    for note in dict.fromkeys(f"{check.tool}: {note}" for check in subject.checks for note in check.notes):
        _say(out, f"  {note}", "cyan")


def _print_score(score: Score, results: ResultSet, out: Console) -> None:
    words = f"no score: {score.why_no_score}"
    if score.minutes is not None and score.measured_minutes is not None:
        scaled = f" = {score.measured_minutes:.2f} measured x {score.factor:.4f}" if score.factor != 1 else ""
        words = f"{score.minutes:.2f} minutes{scaled}"
    _say(out, f"  {score.name}, {score.benchmark}: {words}", "bold")
    if score.tokens_per_s_per_accelerator is not None and score.tflops_per_accelerator is not None:
        words = f"{score.accelerators} x {score.accelerator}: {score.tokens_per_s_per_accelerator:,.0f} tokens/s"
        peak = f"{score.peak_tflops:g} ({score.peak_format}, dense)" if score.peak_tflops else ""
        speed_format = "" if score.peak_format == "BF16" else f" in {score.peak_format}"
        mfu = speed_format if score.mfu is None else f", MFU {score.mfu:.1%} of {peak}"
        _say(out, f"  {words}, {significant(score.tflops_per_accelerator, 3)} TFLOP/s each{mfu}")
    _say(out, f"  convergence: {_convergence(results.convergence, results.judged)}")
    rows = [[shortened(cell, MOST_CELL) for cell in _cells(run)] for run in score.runs]
    _print_table(out, textwrap.indent(table_text(RUN_COLUMNS, rows, above=ABOVE, width=out.width - 2), "  "))


def _convergence(result: Convergence, judged: Judged) -> str:
    """Return the result's length to the target beside that of its reference point."""
    if result.standing == "not tested":
        return f"not tested, {result.why}"
    words = result.standing + (f" by {result.factor:.4f}" if result.factor > 1 else "")
    if result.middle is not None and result.point is not None:
        words += f": {'median' if judged.num_middle_runs == 1 else 'mean'} {judged.count(result.middle)} {judged.unit}"
        words += f"; reference mean {judged.count(result.point.mean)}, from {judged.count(result.point.least)}"
    repaired = "" if result.repaired is None else f"; without void reference data: {result.repaired}"
    return f"{words} ({result.why}){repaired}"


def _cells(run: RunScore) -> Iterator[str]:
    values = (
        (Path(run.path).name, "{}"),
        (run.seed, "{}"),
        (run.status, "{}"),
        (run.minutes, "{:.2f}"),
        (run.tokens, "{:,.0f}"),
        (run.evaluations, "{}"),
        (run.last_log_perplexity, "{:.5f}"),
        (run.init_s, "{:,.0f}"),
        (run.init_share, "{:.1%}"),
        (run.step_s, "{:.3f}"),
        (run.evaluation_share, "{:.1%}"),
        (run.restarts, "{}"),
    )
    return ("-" if value is None or value == "" else form.format(value) for value, form in values)


def _print_findings(findings: Sequence[Finding], subject: SubjectReview, out: Console) -> None:
    """Print each finding with its places, the line, what is expected, what to do or answer, and the rule; of each rule,
    print only the first findings."""
    printed: Counter[str] = Counter()
    for finding in findings:
        printed[finding.rule] += 1
        if printed[finding.rule] > MOST_OF_A_RULE:
            continue
        locations = [subject.near(location) for location in (finding.location, *finding.also[:MOST_PLACES])]
        if len(finding.also) > MOST_PLACES:
            locations.append(f"and {len(finding.also) - MOST_PLACES} more")
        words = f"  {finding.severity:8} {', '.join(locations)}: {finding.observed}; expected: {finding.expected}"
        _say(out, words, COLOURS[finding.severity], indent=11, whole_words=False)
        rule = f"{finding.rule}: {finding.rules}; {finding.source}"
        for title, text in (
            ("line", "" if finding.severity == "note" else finding.text),
            ("fix", finding.mend),
            ("question", finding.question),
            ("rule", rule),
        ):
            if text:
                _say(out, f"           {title}: {text}", indent=13, whole_words=False)
    for rule, count in printed.items():
        if count > MOST_OF_A_RULE:
            _say(out, f"  {rule}: {count - MOST_OF_A_RULE} more findings; --json has all")


def _print_table(out: Console, table: str) -> None:
    for line in table.splitlines():
        out.print(Text(printable(line)), soft_wrap=True)


def _say(out: Console, text: str, style: str = "", indent: int = 4, whole_words: bool = True) -> None:
    """Print text as it is, folded to the console's width: no markup and no control characters from a stranger's
    file."""
    lines = textwrap.wrap(
        printable(text),
        out.width,
        subsequent_indent=" " * indent,
        break_long_words=not whole_words,
        break_on_hyphens=False,
    )
    for line in lines:
        out.print(Text(line, style=style), soft_wrap=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
