"""Show the verdict of the review in words, the result of each official tool, and every finding."""

from collections.abc import Callable, Sequence
from itertools import groupby

from benchmark.judging.report.judgement import Judgement, ReportedRun
from benchmark.judging.report.page_parts import NOTHING, Cell, Row, Section, Table, Words
from benchmark.judging.review.findings import Finding, Severity
from benchmark.judging.review.verdict import SEVERITIES
from foundation.plain_text import counted

KINDS = {"error": "bad", "warning": "warn", "note": "good"}
NAMES = {"error": "error", "warning": "question", "note": "note"}
"""Displayed word for a finding's severity: a warning is a question that a reviewer will ask."""
CHECK_HEAD = ("Official check", "Of", "Verdict")
FINDING_HEAD = ("Severity", "Rule", "Where", "Found", "Expected", "What to do")


NOT_JUDGED = ("warn", NOTHING, "Not judged", "because there was no target.")
"""Colour, sign, word and sentence for runs without a target, as the rehearsal prints them."""


def verdict_of(judgement: Judgement) -> tuple[str, str, str, str]:
    """Return the verdict's colour, sign, word and sentence."""
    findings = [finding for subject in judgement.subjects for finding in subject.findings]
    counts = ", ".join(
        counted(sum(finding.severity == name for finding in findings), NAMES[name]) for name in SEVERITIES
    )
    checks = [check for subject in judgement.subjects for check in subject.checks]
    official = f"{sum(check.passed for check in checks)} of {len(checks)} official checks passed"
    if len(judgement.subjects) > 1:
        passed = sum(subject.passed for subject in judgement.subjects)
        official = f"{passed} of {len(judgement.subjects) + len(judgement.problems)} submissions pass, {official}"
    questions = any(finding.severity == "warning" for finding in findings)
    kind = "bad" if not judgement.passed else "warn" if questions else "good"
    sign, word = ("✓", "Review passed") if judgement.passed else ("✗", "Review failed")
    return kind, sign, word, f"under ruleset {', '.join(judgement.rulesets) or 'none'}: {official}; {counts}."


def review_section(judgement: Judgement, runs: Sequence[ReportedRun]) -> Section:
    """Return the results of the official tools, and each finding once with all its places."""
    near = _nearer(judgement, runs)
    _, _, word, sentence = verdict_of(judgement)
    unchecked = sorted({tool for subject in judgement.subjects for tool in subject.declined})
    text = f"{word} {sentence}"
    if unchecked:
        text += f" Without anything to check here: {', '.join(unchecked)}."
    if judgement.score is not None and judgement.score.why_no_score:
        text += f" No score: {judgement.score.why_no_score}."
    checks = _check_rows(judgement, near)
    findings, notes = (_finding_rows(judgement, near, severities) for severities in (SEVERITIES[:-1], SEVERITIES[-1:]))
    tables = [
        Table("Official checks", CHECK_HEAD, checks),
        Table("Findings", FINDING_HEAD, findings, look="findings cards"),
        Table("Notes", FINDING_HEAD, notes, look="findings cards", summary="Notes"),
    ]
    return Section("review", "Review", [Words(text), *(table for table in tables if table.rows)])


def _check_rows(judgement: Judgement, near: Callable[[str], str]) -> list[Row]:
    """Return a row for each check that did not pass, then for each tool a row with the checks that passed."""
    checks = [check for subject in judgement.subjects for check in subject.checks]
    rows = []
    for check in checks:
        if not check.passed:
            lines = [near(line) for line in (*check.complaints, *check.notes)]
            rows.append(
                Row([Cell(check.tool), Cell(near(check.subject)), Cell(check.outcome, kind="bad", notes=lines)])
            )
    for tool in dict.fromkeys(check.tool for check in checks if check.passed):
        passed = [check for check in checks if check.passed and check.tool == tool]
        of = (
            near(passed[0].subject)
            if len(passed) == 1
            else f"{len(passed)} of {sum(check.tool == tool for check in checks)}"
        )
        notes = dict.fromkeys(near(note) for check in passed for note in check.notes)
        rows.append(Row([Cell(tool), Cell(of), Cell("passed", kind="good", notes=list(notes))]))
    return rows


def _finding_rows(judgement: Judgement, near: Callable[[str], str], severities: Sequence[Severity]) -> list[Row]:
    """Return each finding of these severities once, errors first, with all its places."""

    def key(finding: Finding) -> tuple[object, ...]:
        return SEVERITIES.index(finding.severity), finding.rule, finding.observed, finding.expected, finding.mend

    all_findings = (finding for subject in judgement.subjects for finding in subject.findings)
    findings = sorted((finding for finding in all_findings if finding.severity in severities), key=key)
    rows = []
    for _, group in groupby(findings, key):
        same_findings = list(group)
        finding = same_findings[0]
        first_location, *more_locations = (
            near(location) for duplicate in same_findings for location in (duplicate.location, *duplicate.also)
        )
        number_of_findings = [counted(len(same_findings), NAMES[finding.severity])] if len(same_findings) > 1 else []
        question = ("Question to the submitter", [finding.question]) if finding.question and finding.mend else None
        cells = (
            Cell(NAMES[finding.severity], kind=KINDS[finding.severity], notes=number_of_findings),
            Cell(finding.rule, notes=[finding.rules or finding.source]),
            Cell(
                first_location, folded=(f"and {len(more_locations)} more", more_locations) if more_locations else None
            ),
            Cell(near(finding.observed), code=finding.text),
            Cell(near(finding.expected)),
            Cell(near(finding.mend or finding.question), folded=question),
        )
        rows.append(Row(cells))
    return rows


def _nearer(judgement: Judgement, runs: Sequence[ReportedRun]) -> Callable[[str], str]:
    """Return a function that shortens the paths in a text: logs to their names on the page, other paths to the part
    below the folder of their package or run."""
    short = {str(run.summary.log.path.absolute()): run.name for run in runs}
    for subject in judgement.subjects:
        if subject.kind == "package":
            short[f"{subject.root.absolute().parent}/"] = ""
    for run in runs:
        folder = run.summary.log.path.absolute().parent
        if judgement.systems[run.system].subject.kind == "runs":
            short[f"{folder}/"] = ""
            short[str(folder)] = "/".join(folder.parts[-2:])

    def near(text: str) -> str:
        for path, name in short.items():
            text = text.replace(path, name)
        return text

    return near
