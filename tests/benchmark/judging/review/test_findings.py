"""Rules applied to a subject; findings once per system, without consequences, with their lines."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.judging.review.findings import (
    FACTS,
    MOST_QUOTED,
    MOST_SHOWN,
    STOPPED,
    Deviation,
    Finding,
    Rule,
    Severity,
    apply,
    at,
    merged,
    quoted,
    without_consequences,
)
from tests.benchmark.judging.review.fixture import records, summary_of


def test_each_deviation_becomes_a_finding_of_its_rule() -> None:
    def check(numbers: list[int]) -> Iterator[Deviation]:
        for number in numbers:
            yield Deviation(Path("a/b.txt"), number or None, f"found {number}", "due")

    first, second = apply([Rule("a.rule", "warning", "7.3; timing", check, question="Why?")], [0, 7], Path())
    source, rules = f"{FACTS} 7.3; timing", 'mlcommons/training_policies, training_rules.adoc, "Run Results"'
    assert first == Finding(
        "a.rule", "warning", source, "a/b.txt", None, "found 0", "due", "", question="Why?", rules=rules
    )
    assert (first.location, second.location) == ("a/b.txt", "a/b.txt:7")


@pytest.mark.parametrize(
    ("severity", "mend", "question"), [("error", "mend it", ""), ("warning", "", "Why?"), ("note", "", "")]
)
def test_an_error_has_what_to_mend_and_a_question_what_to_ask(severity: Severity, mend: str, question: str) -> None:
    def check(case: str) -> Iterator[Deviation]:
        yield Deviation(Path("a"), 3, "1", "2", case)

    cases: dict[str, Severity] = {"warning": "warning", "note": "note"}
    (one,) = apply([Rule("a.x", "error", "7.3", check, mend="mend it", question="Why?", cases=cases)], severity, Path())
    assert (one.severity, one.mend, one.question) == (severity, mend, question)


def test_rule_that_stops_is_an_error_and_the_others_go_on() -> None:
    def stops(_: int) -> Iterator[Deviation]:
        yield Deviation(Path("a"), None, "before", "due")
        raise ZeroDivisionError("\x1b[31m" + "x" * 1000)

    def goes_on(_: int) -> Iterator[Deviation]:
        yield Deviation(Path("a"), None, "after", "due")

    rules = [Rule("a.stops", "note", "docs", stops), Rule("a.goes_on", "note", "docs", goes_on)]
    before, stopped, after = apply(rules, 1, Path("log"))
    assert (before.observed, after.observed, stopped.rule, stopped.severity) == ("before", "after", STOPPED, "error")
    assert stopped.observed.startswith("the rule a.stops stopped: ZeroDivisionError: ?[31mxxx")
    assert (len(stopped.observed), stopped.path) == (MOST_SHOWN, "log")


def test_deviation_at_a_record_has_its_line() -> None:
    run = summary_of(records(1), Path("log.txt"))
    (seed,) = run.log.all("seed")
    assert at(run, seed, "7", "8", "late") == Deviation(Path("log.txt"), 8, "7", "8", "late")


def finding(rule: str, path: str, line: int | None, found: str = "found", due: str = "due") -> Finding:
    return Finding(rule, "error", "docs", path, line, found, due, "mend")


def test_what_differs_in_numbers_and_places_only_stands_once() -> None:
    same = [
        finding("a.b", "x/result_0.txt", 3, "3 steps, opt_beta_1 0.8"),
        finding("a.b", "x/result_1.txt", 4, "-1,204.5 steps, opt_beta_1 1e-05"),
        finding("a.b", "x/result_1.txt", 4, "5 steps, opt_beta_1 7"),
    ]
    others = [
        finding("a.b", "x/result_2.txt", 3, "3 steps, opt_beta_2 0.8"),
        finding("a.c", "x/result_2.txt", 3, "3 steps, opt_beta_1 0.8"),
        finding("a.b", "x/result_2.txt", 3, "3 steps, opt_beta_1 0.8", "else"),
        finding("a.b", "x/result_2.txt", 3, "as result_0.txt"),
        finding("a.b", "x/result_2.txt", 3, "as result_1.txt"),
    ]
    found = merged([*same, *others])
    assert [one.also for one in found] == [("x/result_1.txt:4",), (), (), (), (), ()]
    assert found[0].observed == "3 steps, opt_beta_1 0.8"


def test_what_follows_from_another_finding_in_the_file_is_left_out() -> None:
    def nothing(_: object) -> Iterator[Deviation]:
        yield from ()

    rules = [Rule("file.two_runs", "error", "docs", nothing, explains=("key.", "clock."))]
    found = [
        finding("key.once", "a", 1),
        finding("file.two_runs", "a", 9),
        finding("clock.order", "a", 2),
        finding("key.once", "b", 1),
        finding("record.readable", "a", 3),
    ]
    kept = [(one.rule, one.path) for one in without_consequences(found, rules)]
    assert kept == [("file.two_runs", "a"), ("key.once", "b"), ("record.readable", "a")]
    assert without_consequences(found, []) == found


def test_lines_are_quoted_printable_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\r\n\x1b[31mtwo\x07\xe2\x80\xae\n" + b"x" * 10_000)
    here = str(path)
    found = quoted([finding("a.b", here, line) for line in (1, 2, 3, 4, None)] + [finding("a.b", "nowhere", 1)])
    assert [one.text for one in found[:2]] == ["one", "?[31mtwo?â?®"]
    assert found[2].text == "x" * (MOST_QUOTED - 1) + "…"
    assert [one.text for one in found[3:]] == ["", "", ""]
