"""Rules applied to a subject."""

from collections.abc import Iterator
from pathlib import Path

from benchmark.review.findings import MOST_SHOWN, STOPPED, Deviation, Finding, Rule, apply, at
from tests.benchmark.review.fixture import records, summary_of


def test_each_deviation_becomes_a_finding_of_its_rule() -> None:
    def check(numbers: list[int]) -> Iterator[Deviation]:
        for number in numbers:
            yield Deviation(Path("a/b.txt"), number or None, f"found {number}", "due", "mend")

    rule = Rule("a.rule", "warning", "docs", check)
    first, second = apply([rule], [0, 7])
    asked = "a/b.txt: found 0; due: due. How did this come about? Please explain it, or correct it."
    assert first == Finding("a.rule", "warning", "docs", "a/b.txt", None, "found 0", "due", "mend", question=asked)
    assert (first.place, second.place) == ("a/b.txt", "a/b.txt:7")


def test_question_is_the_deviations_the_rules_or_the_familys_and_a_note_has_none() -> None:
    def check(question: str) -> Iterator[Deviation]:
        yield Deviation(Path("x/ORG/results/SYSTEM/gpt3/a.txt"), 3, "1", "2", "mend", question)

    source = "docs/facts/mlperf_review.md 7.3; timing"
    (one,) = apply([Rule("clock.x", "error", source, check, "Why?")], "Who?")
    assert one.question == "SYSTEM/gpt3/a.txt, line 3: 1; due: 2. Who?"
    assert one.rules == 'mlcommons/training_policies, training_rules.adoc, "Run Results"'
    assert next(apply([Rule("clock.x", "error", source, check, "Why?")], "")).question.endswith(" Why?")
    assert "the job's own log" in next(apply([Rule("clock.x", "error", source, check)], "")).question
    assert next(apply([Rule("clock.x", "note", source, check)], "Who?")).question == ""


def test_rule_that_stops_is_an_error_and_the_others_go_on() -> None:
    def stops(_: int) -> Iterator[Deviation]:
        yield Deviation(Path("a"), None, "before", "due", "mend")
        raise ZeroDivisionError("\x1b[31m" + "x" * 1000)

    def goes_on(_: int) -> Iterator[Deviation]:
        yield Deviation(Path("a"), None, "after", "due", "mend")

    rules = [Rule("a.stops", "note", "docs", stops), Rule("a.goes_on", "note", "docs", goes_on)]
    before, stopped, after = apply(rules, 1, Path("log"))
    assert (before.found, after.found, stopped.rule, stopped.severity) == ("before", "after", STOPPED, "error")
    assert stopped.found.startswith("the rule a.stops stopped: ZeroDivisionError: ?[31mxxx")
    assert (len(stopped.found), stopped.path) == (MOST_SHOWN, "log")


def test_deviation_at_a_record_has_its_line() -> None:
    run = summary_of(records(1), Path("log.txt"))
    (seed,) = run.log.all("seed")
    assert at(run, seed, "7", "8", "count") == Deviation(Path("log.txt"), 8, "7", "8", "count")
