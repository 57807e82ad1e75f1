"""The tables of the page."""

import json
from pathlib import Path

import pytest

from benchmark.report.page_tables import evaluations_by_tokens, number, origin, run_row, times_of
from benchmark.report.timeline import Timeline, timeline
from benchmark.results.recorded_run import read_recorded_run
from tests.benchmark.report.runs import MadeRun, write_run


def test_unknown_numbers_are_a_dash() -> None:
    assert (number(None, "{:.2f}"), number(2.0, "{:.2f}")) == ("\N{EN DASH}", "2.00")


def test_rows_of_runs_and_evaluations(tmp_path: Path) -> None:
    runs = [read_recorded_run(write_run(tmp_path / str(n), values)) for n, values in enumerate(((5.5, 2.43), (5.6,)))]
    row = run_row(runs[0], "run_0", 7)
    assert (row.name, row.colour, row.seeds, row.minutes, row.tokens) == ("run_0", 1, "7", "0.12", "16,384")
    assert (row.last, row.status) == ("2.43000", "success")
    assert evaluations_by_tokens(runs) == [
        ("8,192", ["5.50000", "5.60000"]),
        ("16,384", ["2.43000", "\N{EN DASH}"]),
    ]


def test_times_fill_the_bar(tmp_path: Path) -> None:
    times = times_of(timeline(read_recorded_run(write_run(tmp_path / "run"))), "run")
    assert [(part.name, part.seconds) for part in times.parts] == [
        ("init", "2.00 s"),
        ("productive", "6.00 s"),
        ("evaluation", "4.50 s"),
        ("checkpoint", "0.50 s"),
    ]
    assert sum(part.width for part in times.parts) == pytest.approx(1000, abs=0.1)
    assert times.text.startswith("13.00 s in all: init 2.00 s (15.4%), productive 6.00 s (46.2%)")
    merged = times_of(Timeline({"productive": 5.0}), "log")
    assert (merged.parts[0].label, merged.parts[0].width) == ("train and all else", 1000)


def test_origin_of_two_runs_side_by_side(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "a")
    made.begin()
    made.emit("inputs", {"/c4/data": {"md5": {"data.bin": "5"}}, "/c4/ckpt": {}}, mlperf=False)
    made.emit("environment", {"torch": "2.13"}, mlperf=False)
    runs = [read_recorded_run(made.end()), read_recorded_run(write_run(tmp_path / "b", seed=8))]
    groups = {group.title: group for group in origin(runs, ["a", "b"])}
    assert all(group.columns == ["a", "b"] for group in groups.values())
    rows = {title: dict(group.rows) for title, group in groups.items()}
    assert rows["Data and checkpoint"] == {
        "data.bin": ["MD5 5", "\N{EN DASH}"],
        "ckpt": ["no manifest", "\N{EN DASH}"],
    }
    assert rows["Code and environment"] == {"torch": ["2.13", "\N{EN DASH}"]}
    assert rows["Log"]["seeds"] == ["7", "8"]
    assert rows["Configuration"]["global batch size"] == ["16", "16"]
    assert next(origin(runs[:1], ["a"])).columns == []
    assert json.dumps(rows["Log"]["platform"]) == '["CPU-2", "CPU-2"]'
