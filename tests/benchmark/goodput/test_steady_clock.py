"""Clocks that are set while a run goes on."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.goodput.steady_clock import FIRST_MS, Jump, as_milliseconds, steady


@given(st.lists(st.integers(0, 10**6)))
def test_times_never_go_back_and_keep_their_beginning(given_ms: list[int]) -> None:
    found = steady(given_ms)
    assert list(found.times_ms) == sorted(found.times_ms)
    assert len(found.times_ms) == len(found.late_ms) == len(given_ms)
    assert found.times_ms[:1] == given_ms[:1]


@given(st.lists(st.integers(0, 10**6)).map(sorted))
def test_clock_that_goes_on_is_believed(given_ms: list[int]) -> None:
    found = steady(given_ms)
    assert list(found.times_ms) == given_ms
    assert set(found.late_ms) <= {0}
    assert found.jumps == []


def test_jump_back_takes_no_time_and_moves_what_follows() -> None:
    found = steady([10, 20, 30, 5, 15, 40])
    assert list(found.times_ms) == [10, 20, 30, 30, 40, 65]
    assert list(found.late_ms) == [0, 0, 0, 25, 25, 25]
    assert found.jumps == [Jump(5, 25)]


@pytest.mark.parametrize("odd", [3, 999_999])
def test_single_time_out_of_its_place_is_put_back(odd: int) -> None:
    found = steady([10, 20, odd, 30, 40])
    assert found.times_ms[0] == 10
    assert found.times_ms[-1] == 40
    assert 20 <= found.times_ms[2] <= 30
    assert found.jumps == []


@pytest.mark.parametrize("value", [None, True, "1700000000", 0, -1, 1e300, math.nan, math.inf, 10**400, [1]])
def test_what_is_no_time_is_none(value: object) -> None:
    assert as_milliseconds(value) is None


def test_time_is_in_milliseconds() -> None:
    assert as_milliseconds(1.7e9 + 0.0625) == 1_700_000_000_062
    assert as_milliseconds(FIRST_MS // 1000) == FIRST_MS
