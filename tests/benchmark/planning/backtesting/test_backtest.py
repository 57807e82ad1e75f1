"""The backtest: its errors are those that docs/planning.md tells, and within what is promised."""

import dataclasses
from functools import cache
from pathlib import Path

import pytest

from benchmark.planning.backtesting.backtest import (
    GROUPS,
    Backtest,
    Comparison,
    backtest,
    read_leave_out,
    summary,
    write_leave_out,
)
from benchmark.planning.step_model.machine_constants import committed_constants
from stage.errors import InputError


@cache
def outcome() -> Backtest:
    """When the first test asks for it: several processes collect this file, and one runs its tests."""
    return backtest()


def test_median_error_of_what_was_not_used_is_at_most_4_per_cent() -> None:
    held = outcome().summaries[0]
    assert held.group == "not used for fitting, topology published"
    assert held.results > 200
    assert held.median <= 0.04
    assert held.nine_of_ten == pytest.approx(committed_constants()["backtest.error"].value, rel=0.01)
    assert outcome().left_aside == ()


def test_median_error_of_what_came_after_the_model_is_at_most_4_per_cent() -> None:
    """These rows count in no other group: neither in fitting nor among those by which the model was chosen."""
    by_name = {each.group: each for each in outcome().summaries}
    unseen = [each for each in outcome().comparisons if each.unseen]
    assert by_name["added after the fit, model unchanged"].results == len(unseen) > 50
    assert by_name["added after the fit, model unchanged"].median <= 0.04
    held = [each for each in outcome().comparisons if not each.used and not each.guessed and not each.unseen]
    assert outcome().summaries[0].results == len(held)


def test_every_result_is_compared_once() -> None:
    ids = [each.id for each in outcome().comparisons]
    assert len(ids) == len(set(ids)) > 400
    assert all(each.url.startswith("https://") for each in outcome().comparisons)
    assert not any(each.used and each.guessed for each in outcome().comparisons)


def test_summaries() -> None:
    first = outcome().comparisons[0]
    errors = (0.01, -0.02, 0.05, -0.20)
    rows: list[Comparison] = [
        dataclasses.replace(first, id=str(error), published_s=1.0, predicted_s=1 + error) for error in errors
    ]
    found = summary("some", rows)
    assert (found.results, found.largest_id, found.above_12, found.within_4) == (4, "-0.2", 1, 0.5)
    assert found.median == pytest.approx(0.035)
    assert found.covered == 0.0
    wide = [dataclasses.replace(each, low_s=0.9, high_s=1.1) for each in rows[:3]]
    assert summary("some", [*wide, rows[3]]).covered == 0.75


def test_intervals_hold_what_they_promise() -> None:
    """Nine of ten steps that were not used lie within; nearly as many of those whose topology is partly guessed."""
    by_name = {each.group: each for each in outcome().summaries}
    assert 0.88 <= by_name["not used for fitting, topology published"].covered <= 0.95
    assert by_name["not used, topology partly guessed"].covered >= 0.80


def test_rows_that_contradict_their_own_table_are_told() -> None:
    doubted = [each for each in outcome().comparisons if each.doubt]
    assert {each.id for each in doubted} >= {"bloom-72x14336-tp8-pp6-mb4-b1568", "foundry-a100-40-bf16-1b-s2048-32"}
    agreeing = {each.group: each for each in outcome().summaries}[
        "of these, not contradicted by the table they are from"
    ]
    held = sum(not each.used and not each.guessed for each in doubted)
    assert agreeing.results == outcome().summaries[0].results - held


def test_groups_left_out_are_kept_as_a_file(tmp_path: Path) -> None:
    committed = read_leave_out()
    assert {each.group for each in committed} <= {f"without {group}" for group in GROUPS}
    assert len(committed) >= 6
    path = tmp_path / "leave_out.json"
    write_leave_out(committed, path)
    assert read_leave_out(path) == committed
    path.write_text('[{"group": 1}]')
    with pytest.raises(InputError, match=r"leave_out\.json: no list of errors"):
        read_leave_out(path)
