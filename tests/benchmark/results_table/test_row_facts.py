"""Facts of systems and runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.results_table.reviewed_places import review_places
from benchmark.results_table.row_facts import scalars
from benchmark.results_table.table_rows import system_row
from benchmark.review.official_tools import ToolVerdict
from tests.benchmark.results_table.places import without_official_tools, write_round
from tests.benchmark.review.fixture import SYSTEM


def test_speed_of_each_run_is_that_of_the_score_for_the_middle_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_official_tools(monkeypatch)
    (place,) = review_places([write_round(tmp_path / "v4.1", ["ACME"])])
    (system,) = place.systems
    middle = next(run for run in system.runs if run.summary is system.middle)
    assert middle.mfu == pytest.approx(system.score.mfu)
    assert middle.tflops_per_accelerator == pytest.approx(system.score.tflops_per_accelerator)
    assert system.result_set.name == SYSTEM
    assert middle.validation_step_s == pytest.approx(10.0, abs=0.5)


def test_scalars_are_the_first_values_of_keys_that_no_column_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_official_tools(monkeypatch)
    (place,) = review_places([write_round(tmp_path / "v4.1", ["ACME"])])
    run = place.systems[0].runs[0]
    found = scalars(run, ("seed", "global_batch_size"))
    assert found["cache_clear"] is True
    assert found["trained_samples"] == 24 * 50_331_648
    assert "seed" not in found
    assert "block_start" not in found


def test_official_scores_are_those_of_the_summarizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_official_tools(monkeypatch)
    (place,) = review_places([write_round(tmp_path / "v4.1", ["ACME"])])
    (system,) = place.systems
    assert system.official == {}
    said = ToolVerdict("summarizer", "ACME", "passed", (), (), 0.1, {SYSTEM: {"time_to_train": 49.5, "RCP": "Pass"}})
    told = replace(system, subject=replace(system.subject, checks=(*system.subject.checks, said)))
    row = system_row(told)
    assert (row["gpt3:time_to_train"], row["gpt3:RCP"], row["gpt3:Energy"]) == (49.5, "Pass", None)
