"""Nothing in a file ends a review, takes long, or reaches the terminal as it is."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from benchmark.review.findings import STOPPED, Deviation, Rule
from benchmark.review.rules import rule_table
from benchmark.review.rules.copy_rules import Trace, likeness
from benchmark.review.verdict import review
from tests.benchmark.review.fixture import as_text, records, write_package
from tests.benchmark.review.hostile_places import PLACES
from tests.benchmark.review.huge_logs import HUGE, measured
from tests.benchmark.review.mutations import descriptions, logs
from tests.benchmark.review.reviews import verdict
from tests.benchmark.review.sound_review import (
    assert_findings_are_sound,
    assert_sound,
    review_description,
    review_log,
)

QUIET: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
IN_TESTS = (
    "60,000 keys, each twice",
    "25,000 restarts",
    "a text of 900 kB of control characters",
    "50 MB of newlines",
    "a number of 400 digits",
    "a number of 100,000 digits",
    "arrays in arrays",
)
"""The others take longer: python -m tests.speed.fuzz_review."""


@pytest.mark.slow
@settings(max_examples=60, **QUIET)
@given(logs())
def test_no_log_stops_a_rule_or_shows_control_characters(content: bytes) -> None:
    """Ten thousand of them: python -m tests.speed.fuzz_review."""
    assert_sound(review_log(content))


@settings(max_examples=30, **QUIET)
@given(descriptions())
def test_no_description_does_either(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "system.json"
    path.write_bytes(content)
    assert_findings_are_sound(review_description(path, "4.1.0"))


def test_a_rule_that_stops_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(_: object) -> Iterator[Deviation]:
        yield from ()
        raise OverflowError("cannot convert float infinity to integer")

    rule: Rule[Any] = Rule("clock.x", "note", "docs/facts/mlperf_review.md 7.3", stops)
    monkeypatch.setattr("benchmark.review.verdict.LOG_RULES", (*rule_table.LOG_RULES, rule))
    review = review_log(as_text(records(1)).encode())
    assert STOPPED in {finding.rule for subject in review.subjects for finding in subject.findings}
    with pytest.raises(AssertionError):
        assert_sound(review)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_TESTS)
def test_huge_logs_take_little_time_and_memory(name: str) -> None:
    """Processor time, not wall time: other tests run beside it."""
    assert measured(HUGE[name]()).within_limits


@pytest.mark.slow
@pytest.mark.parametrize(("name", "due", "spoil"), PLACES, ids=[name for name, *_ in PLACES])
def test_whatever_lies_in_a_package_the_next_one_is_reviewed(
    name: str, due: str, spoil: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmark.review.verdict.run_checkers", lambda subjects, done: [[verdict()] for _ in subjects])
    spoilt, fine = write_package(tmp_path / "1"), write_package(tmp_path / "2")
    spoil(spoilt)
    found = review([spoilt, fine], "4.1.0")
    assert_sound(found)
    assert [one.verdict for one in found.subjects] == [due, "acceptable"]
    subprocess.run(["rm", "-rf", spoilt], check=True)  # pytest's own way is recursive


def test_a_constant_curve_is_like_no_other() -> None:
    flat, falling = Trace((2.7,) * 20, (1.0,) * 19), Trace(tuple(2.6 - 0.01 * step for step in range(20)), (2.0,) * 19)
    assert (likeness(flat, falling), likeness(falling, flat)) == ("", "")
