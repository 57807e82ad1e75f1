"""The tables of the page."""

import json
from pathlib import Path

import pytest

from benchmark.report.page_tables import MOST_COLUMNS, evaluations_by_tokens, origin, run_row, times_of
from benchmark.report.timeline import Timeline, timeline
from benchmark.results.recorded_run import read_recorded_run
from tests.benchmark.report.made_pages import judged, made_page, made_runs
from tests.benchmark.report.runs import MadeRun, write_run
from tests.benchmark.review.fixture import write_package


def test_rows_of_runs_and_evaluations(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / str(number), values) for number, values in enumerate(((5.5, 2.43), (5.6,)))]
    runs = made_runs(paths)
    row = run_row(runs[1], True)
    assert (row.name, row.colour, row.seeds, row.minutes, row.tokens) == ("1", 1, "7", "0.06", "8,192")
    assert (row.started, row.last, row.status) == ("2023-11-14", "5.60000", "success")
    assert run_row(runs[1], False).colour is None
    recorded = [run.recorded for run in runs]
    assert evaluations_by_tokens(recorded) == [
        ("8,192", ["5.50000", "5.60000"]),
        ("16,384", ["2.43000", "\N{EN DASH}"]),
    ]
    assert evaluations_by_tokens(recorded * MOST_COLUMNS) == []


def test_times_fill_the_bar(tmp_path: Path) -> None:
    times = times_of(timeline(read_recorded_run(write_run(tmp_path / "run"))), "run", 13.0)
    assert [(part.name, part.seconds) for part in times.parts] == [
        ("init", "2.00 s"),
        ("productive", "6.00 s"),
        ("evaluation", "4.50 s"),
        ("checkpoint", "0.50 s"),
    ]
    assert sum(part.width for part in times.parts) == pytest.approx(1000, abs=0.1)
    assert times.text.startswith("13.00 s in all: init 2.00 s (15.4%), productive 6.00 s (46.2%)")
    merged = times_of(Timeline({"productive": 5.0}), "log", 5.0)
    assert (merged.parts[0].label, merged.parts[0].width) == ("train and all else", 1000)


def test_times_of_several_runs_are_on_one_scale(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "long", (5.5, 3.5, 2.43)), write_run(tmp_path / "short", (2.43,))]
    long, short = made_page(runs).times
    assert sum(part.width for part in long.parts) == pytest.approx(1000, abs=0.1)
    assert sum(part.width for part in short.parts) == pytest.approx(1000 * 5.5 / 13, abs=0.1)
    assert (long.total, short.total) == ("13.00 s", "5.50 s")


def test_origin_of_two_runs_side_by_side(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "a")
    made.begin()
    made.emit("inputs", {"/c4/data": {"md5": {"data.bin": "5"}}, "/c4/ckpt": {}}, mlperf=False)
    made.emit("environment", {"torch": "2.13"}, mlperf=False)
    paths = [made.end(), write_run(tmp_path / "b", seed=8)]
    runs, systems = made_runs(paths), judged(paths).systems
    groups = {group.title: group for group in origin(runs, systems, ["ours"])}
    assert all(group.columns == ["a", "b"] for title, group in groups.items() if title != "System")
    rows = {title: dict(group.rows) for title, group in groups.items()}
    assert rows["System"] == {}
    assert rows["Data and checkpoint"] == {
        "data.bin": ["MD5 5", "\N{EN DASH}"],
        "ckpt": ["no manifest", "\N{EN DASH}"],
    }
    assert rows["Code and environment"] == {"torch": ["2.13", "\N{EN DASH}"]}
    assert rows["Log"]["seeds"] == ["7", "8"]
    assert rows["Configuration"]["global batch size"] == ["16", "16"]
    alone = {group.title: group for group in origin(runs[:1], systems, ["ours"])}
    assert alone["Log"].columns == []
    assert json.dumps(rows["Log"]["platform"]) == '["CPU-2", "CPU-2"]'


def test_origin_of_several_systems_has_a_column_for_each(tmp_path: Path) -> None:
    paths = [write_package(tmp_path).rename(tmp_path / name) for name in ("A", "B")]
    groups = {group.title: group for group in made_page(paths).origin}
    seeds = dict(groups["Log"].rows)["seeds"]
    assert len(seeds) == 2
    assert all(len(one.split("; ")) == 3 for one in seeds)
    assert dict(groups["Configuration"].rows)["learning rate"] == ["2e-05", "2e-05"]
