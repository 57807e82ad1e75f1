"""Warnings about records, and fixed values by benchmark; the errors are in the table of damages."""

from pathlib import Path

import pytest

from benchmark.results.judged import GPT3, REHEARSED
from benchmark.review.rules import key_rules
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records, summary_of


@pytest.mark.parametrize(("name", "told"), [("result_0.txt", 0), ("result_x.txt", 0), ("run_1.txt", 1), ("log", 1)])
def test_file_name(name: str, told: int) -> None:
    assert len(list(key_rules.file_name(summary_of(records(1), Path(name))))) == told


def test_starts_and_stops_are_intervals() -> None:
    log = Log(records(1))
    log.records[log.place("run_start")]["event_type"] = "POINT_IN_TIME"
    log.records[log.place("eval_stop")]["event_type"] = "INTERVAL_START"
    found = [(at.line, at.found, at.due) for at in key_rules.well_formed(summary_of(log.records))]
    assert found == [
        (26, "run_start as POINT_IN_TIME", "INTERVAL_START"),
        (32, "eval_stop as INTERVAL_START", "INTERVAL_END"),
    ]


def test_configuration_after_the_start_is_late() -> None:
    log = Log(records(1))
    log.records.insert(30, log.records.pop(log.place("seed")))
    (at,) = key_rules.late(summary_of(log.records))
    assert (at.line, at.found) == (31, "seed after run_start")


def test_status_class_and_second_seed_and_weight_decay() -> None:
    log = Log(records(1))
    log.set("submission_status", "Available")
    log.without("opt_weight_decay")
    place = log.place("seed")
    log.records.insert(place, log.copied(place, value=2))
    run = summary_of(log.records)
    assert [at.found for at in key_rules.status(run)] == ["submission_status 'Available'"]
    assert [(at.line, at.found) for at in key_rules.one_seed(run)] == [(9, "2 seeds")]
    assert [at.due for at in key_rules.weight_decay_logged(run)] == ["opt_weight_decay 0.1"]
    run = summary_of(records(1))
    assert [*key_rules.status(run), *key_rules.one_seed(run), *key_rules.weight_decay_logged(run)] == []


def test_fixed_values_are_those_of_the_benchmark() -> None:
    values = [{rule.key: rule.value for rule in key_rules.fixed_values(judged)} for judged in (GPT3, REHEARSED)]
    assert [value["max_sequence_length"] for value in values] == [2048, 128]
    assert values[0]["opt_adam_beta_2"] == values[1]["opt_adam_beta_2"] == 0.95


def test_long_values_are_cut() -> None:
    log = Log(records(1))
    log.set("submission_division", "x" * 100)
    (at,) = key_rules.names(summary_of(log.records))
    assert at.found == f"submission_division '{'x' * 58}…"


def test_open_division_needs_no_seed_and_any_weight_decay() -> None:
    log = Log(records(1))
    log.without("seed")
    log.set("opt_weight_decay", 0.5)
    assert len([*key_rules.seeds(summary_of(log.records)), *key_rules.weight_decay(summary_of(log.records))]) == 2
    log.set("submission_division", "open")
    assert [*key_rules.seeds(summary_of(log.records)), *key_rules.weight_decay(summary_of(log.records))] == []
