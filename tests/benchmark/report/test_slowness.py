"""The rows of what slowed a run, and the page without any."""

from pathlib import Path
from typing import Any

from benchmark.report.slowness import slowness
from benchmark.report.write_report import ReportOptions, render, report_on
from benchmark.results.recorded_run import read_recorded_run
from tests.benchmark.report.runs import MadeRun, write_run

SLOW = {
    "rank": 12,
    "host": "n2",
    "device": 4,
    "excess": 0.31,
    "block_s": 0.00301,
    "peers_block_s": 0.0023,
    "health": "clocks 1,095 of 1,980 MHz, thermal slowdown",
}


def run_with(folder: Path, *noted: tuple[str, dict[str, Any]]) -> Path:
    made = MadeRun(folder)
    made.begin()
    for key, fields in noted:
        made.emit(key, mlperf=False, **fields)
    made.end()
    return folder


def test_rows(tmp_path: Path) -> None:
    folder = run_with(
        tmp_path / "run",
        (
            "device_health",
            {"rank": 3, "host": "n1", "device": 3, "found": "8 errors on its NVLinks"},
        ),
        ("slow_ranks", {"iteration": 4100, "slow": [SLOW], "recovered": []}),
        ("speed_change", {"kind_of_change": "drop", "since": 4090, "before_s": 105.2, "now_s": 111.0}),
        ("slow_ranks", {"iteration": 4200, "slow": [], "recovered": [12]}),
    )
    found = [(row.step, row.place, row.found) for row in slowness([read_recorded_run(folder)], ["run"])]
    assert found == [
        ("", "rank 3 on n1 GPU 3", "8 errors on its NVLinks"),
        (
            "4,100",
            "rank 12 on n2 GPU 4",
            "computes 31% slower: 3.01 ms a block, its peers 2.3 ms; clocks 1,095 of 1,980 MHz, thermal slowdown",
        ),
        ("4,090", "all ranks", "steps became slower: 111 s, 105.2 s before"),
        ("4,200", "rank 12", "computes as fast as the others again"),
    ]


def test_what_is_not_as_a_run_notes_it_breaks_nothing(tmp_path: Path) -> None:
    folder = run_with(
        tmp_path / "run",
        ("slow_ranks", {"iteration": "x", "slow": [{"rank": None, "host": "<b>"}, 3], "recovered": 5}),
        ("slow_ranks", {"slow": "all"}),
        ("speed_change", {"since": [], "now_s": "fast"}),
    )
    page = render(report_on([folder], ReportOptions()))
    assert "rank ? on &lt;b&gt;" in page
    assert "What slowed it" in page


def test_a_run_that_nothing_slowed_has_no_such_table(tmp_path: Path) -> None:
    assert "What slowed it" not in render(report_on([write_run(tmp_path / "run")], ReportOptions()))
