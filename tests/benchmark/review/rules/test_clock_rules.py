"""Warnings about times, and what of them is no fault; the errors are in the table of damages."""

import pytest

from benchmark.results.judged import REHEARSED
from benchmark.review.rules import clock_rules
from tests.benchmark.review.damage import Log, T
from tests.benchmark.review.fixture import records, summary_of


@pytest.mark.parametrize(("milliseconds", "short", "long"), [(99, 0, 0), (200, 1, 0), (9_999, 1, 0), (10_001, 0, 1)])
def test_gap_between_init_stop_and_run_start(milliseconds: int, short: int, long: int) -> None:
    log = Log(records(1))
    log.shift(log.place("run_start"), milliseconds)
    run = summary_of(log.records)
    assert (len(list(clock_rules.short_gap(run))), len(list(clock_rules.long_gap(run)))) == (short, long)
    for gap in (*clock_rules.short_gap(run), *clock_rules.long_gap(run)):
        assert (gap.line, gap.due) == (26, "back to back")


def test_initialisation_may_take_longer_in_the_open_division() -> None:
    log = Log(records(1))
    log.shift(log.place("init_stop"), 30 * 60_000)
    (late,) = clock_rules.init_time(summary_of(log.records))
    assert (late.found, late.due) == ("init_stop 2000 s after the first init_start", "less than 1800 s")
    log.set("submission_division", "open")
    assert list(clock_rules.init_time(summary_of(log.records))) == []


def test_clock_that_steps_back_before_the_run_is_a_warning() -> None:
    log = Log(records(1))
    log.records[log.place("opt_name")]["time_ms"] -= 60_000
    run = summary_of(log.records)
    (step,) = clock_rules.backwards_elsewhere(run)
    assert (step.line, step.found) == (14, "opt_name is 60 s earlier than init_checkpoint_step in line 13")
    assert list(clock_rules.backwards_in_run(run)) == []


def test_many_ranks_may_log_their_init_start_in_any_order() -> None:
    log = Log(records(1))
    log.records.insert(2, log.copied(1, time_ms=log.records[1]["time_ms"] - 3_000))
    run = summary_of(log.records)
    assert [*clock_rules.backwards_elsewhere(run), *clock_rules.order(run)] == []


def test_slow_block_and_slow_stop() -> None:
    log = Log(records(1))
    log.shift(log.place("block_stop", 6), 200_000)
    log.shift(log.place("run_stop"), 10_100)
    run = summary_of(log.records)
    (block,), (stop,) = clock_rules.slow_blocks(run), clock_rules.slow_stop(run)
    assert block.found == "330 s since the evaluation before, 2.5 times the median"
    assert stop.found == "run_stop 10 s after the evaluation that met the target"
    run = summary_of(records(1))
    assert [*clock_rules.slow_blocks(run), *clock_rules.slow_stop(run)] == []


def test_logged_restart_is_told_and_its_block_not_called_slow() -> None:
    log = Log(records(1))
    place = log.place("block_stop", 6)
    time_ms = log.records[place - 1]["time_ms"] + 1
    restart = log.copied(place, key="restart", value=1, time_ms=time_ms)
    restart["metadata"]["step"] = 6 * T
    log.records.insert(place, restart)
    log.shift(place + 1, 1_200_000)
    run = summary_of(log.records)
    (told,) = clock_rules.restarts(run)
    assert told.found == "restart 1 at 301,989,888 tokens; the time it lost is in the score"
    assert [*clock_rules.slow_blocks(run), *clock_rules.restart_tokens(run)] == []


def test_caches_are_cleared_but_for_rehearsals() -> None:
    log = Log(records(1))
    log.set("cache_clear", False)
    (left,) = clock_rules.cache_clear(summary_of(log.records))
    assert (left.found, left.due) == ("cache_clear False", "true")
    log.set("submission_benchmark", REHEARSED.name)
    assert list(clock_rules.cache_clear(summary_of(log.records))) == []
