"""Rules applied to a subject."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.review.findings import FACTS, MOST_SHOWN, STOPPED, Deviation, Finding, Rule, Severity, apply, at
from tests.benchmark.review.fixture import records, summary_of


def test_each_deviation_becomes_a_finding_of_its_rule() -> None:
    def check(numbers: list[int]) -> Iterator[Deviation]:
        for number in numbers:
            yield Deviation(Path("a/b.txt"), number or None, f"found {number}", "due")

    first, second = apply([Rule("a.rule", "warning", "7.3; timing", check, question="Why?")], [0, 7], Path())
    source, rules = f"{FACTS} 7.3; timing", 'mlcommons/training_policies, training_rules.adoc, "Run Results"'
    assert first == Finding(
        "a.rule", "warning", source, "a/b.txt", None, "found 0", "due", "", question="Why?", rules=rules
    )
    assert (first.place, second.place) == ("a/b.txt", "a/b.txt:7")


@pytest.mark.parametrize(
    ("severity", "mend", "question"), [("error", "mend it", ""), ("warning", "", "Why?"), ("note", "", "")]
)
def test_an_error_has_what_to_mend_and_a_question_what_to_ask(severity: Severity, mend: str, question: str) -> None:
    def check(less: Severity) -> Iterator[Deviation]:
        yield Deviation(Path("a"), 3, "1", "2", severity=less)

    (one,) = apply([Rule("a.x", "error", "7.3", check, mend="mend it", question="Why?")], severity, Path())
    assert (one.severity, one.mend, one.question) == (severity, mend, question)


def test_rule_that_stops_is_an_error_and_the_others_go_on() -> None:
    def stops(_: int) -> Iterator[Deviation]:
        yield Deviation(Path("a"), None, "before", "due")
        raise ZeroDivisionError("\x1b[31m" + "x" * 1000)

    def goes_on(_: int) -> Iterator[Deviation]:
        yield Deviation(Path("a"), None, "after", "due")

    rules = [Rule("a.stops", "note", "docs", stops), Rule("a.goes_on", "note", "docs", goes_on)]
    before, stopped, after = apply(rules, 1, Path("log"))
    assert (before.found, after.found, stopped.rule, stopped.severity) == ("before", "after", STOPPED, "error")
    assert stopped.found.startswith("the rule a.stops stopped: ZeroDivisionError: ?[31mxxx")
    assert (len(stopped.found), stopped.path) == (MOST_SHOWN, "log")


def test_deviation_at_a_record_has_its_line() -> None:
    run = summary_of(records(1), Path("log.txt"))
    (seed,) = run.log.all("seed")
    assert at(run, seed, "7", "8", "note") == Deviation(Path("log.txt"), 8, "7", "8", severity="note")
