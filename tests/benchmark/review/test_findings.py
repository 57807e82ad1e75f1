"""Rules applied to a subject."""

from collections.abc import Iterator
from pathlib import Path

from benchmark.review.findings import Deviation, Finding, Rule, apply, at
from tests.benchmark.review.fixture import records, summary_of


def test_each_deviation_becomes_a_finding_of_its_rule() -> None:
    def check(numbers: list[int]) -> Iterator[Deviation]:
        for number in numbers:
            yield Deviation(Path("a/b.txt"), number or None, f"found {number}", "due", "mend")

    rule = Rule("a.rule", "warning", "docs", check)
    first, second = apply([rule], [0, 7])
    assert first == Finding("a.rule", "warning", "docs", "a/b.txt", None, "found 0", "due", "mend")
    assert (first.place, second.place) == ("a/b.txt", "a/b.txt:7")


def test_deviation_at_a_record_has_its_line() -> None:
    run = summary_of(records(1), Path("log.txt"))
    (seed,) = run.log.all("seed")
    assert at(run, seed, "7", "8", "count") == Deviation(Path("log.txt"), 8, "7", "8", "count")
