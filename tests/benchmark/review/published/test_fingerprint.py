"""Runs are told from each other, whatever is done to one of them."""

import math

import pytest

from benchmark.review.published.fingerprint import Fingerprint, collection, likeness, of_published, of_run
from benchmark.review.published.published_traces import published_traces
from tests.benchmark.review.disguises import DISGUISES
from tests.benchmark.review.fixture import records, summary_of

COLLECTION = collection([of_run(summary_of(records(seed))) for seed in (3, 1, 2)])


@pytest.mark.parametrize("name", DISGUISES)
def test_disguised_run_is_that_run(name: str) -> None:
    found = likeness(of_run(summary_of(DISGUISES[name](records(1)))), COLLECTION)
    assert [one is not None and one.copied for one in found] == [False, True, False], found


def test_other_runs_are_not_alike() -> None:
    for seed in range(4, 24):
        assert likeness(of_run(summary_of(records(seed))), COLLECTION) == [None, None, None]


@pytest.mark.slow
def test_published_traces_are_alike_only_where_one_was_published_twice() -> None:
    runs = published_traces()
    prints = [of_published(run) for run in runs]
    for place, run in enumerate(runs):
        found = likeness(prints[place], collection(prints[:place]))
        for other, alike in zip(runs, found, strict=False):
            assert (alike is not None) == (run.run_start_ms == other.run_start_ms), (run.name, other.name)


def test_steps_have_a_pattern() -> None:
    steps = tuple(10 + math.sin(place * place) for place in range(100))
    one = Fingerprint((), (), steps)
    slower = Fingerprint((), (), tuple(2 * step for step in steps))
    other = Fingerprint((), (), tuple(10 + math.cos(place * place) for place in range(100)))
    first, second = likeness(one, collection([slower, other]))
    assert first is not None
    assert (first.what, first.copied) == ("the times of its steps", True)
    assert second is None


@pytest.mark.parametrize(
    "values", [(), (math.nan,) * 30, (1e308, -1e308) * 15, (0.0,) * 30, (2.7,)], ids=["none", "nan", "huge", "0", "one"]
)
def test_numbers_of_strangers_are_no_error(values: tuple[float, ...]) -> None:
    odd = Fingerprint(values, tuple(abs(value) for value in values[1:]), values)
    assert likeness(odd, COLLECTION) == [None, None, None]
    assert likeness(odd, collection([])) == []
    assert len(likeness(odd, collection([odd, odd]))) == 2
