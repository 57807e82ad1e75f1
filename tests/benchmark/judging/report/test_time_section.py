"""Where the time went: runs whose every second is known; the ribbon, the attempts, and what slowed a run."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmark.judging.report.page_parts import Bar, Table, Words
from benchmark.judging.report.time_section import (
    CELLS,
    WIDTH,
    Timeline,
    attempts_shown,
    ribbon,
    slowness_of,
    time_bar,
    time_section,
    timeline,
)
from benchmark.judging.results.recorded_run import read_recorded_run
from benchmark.run_record.events.recorded_events import RecordedEvent
from benchmark.run_record.status.run_status import RunStatus
from benchmark.run_record.status.status_reading import read_status
from tests.benchmark.judging.report.made_pages import made_runs
from tests.benchmark.judging.report.runs import write_run
from tests.benchmark.run_record.status.supervised_run import killed_and_hung


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> RunStatus:
    return read_status(killed_and_hung(tmp_path_factory.mktemp("goodput") / "run"))


def test_run_adds_up_to_its_length(tmp_path: Path) -> None:
    times = timeline(read_recorded_run(write_run(tmp_path / "run")))
    bar = time_bar(times, "run", 13.0, meanings=False)
    told = [(label, value) for _, label, value, _, _ in bar.legend]
    assert told == [("init", "2.00 s"), ("productive", "6.00 s"), ("evaluation", "4.50 s"), ("checkpoint", "0.50 s")]
    assert sum(part.width for part in bar.parts) == pytest.approx(1000, abs=0.1)
    assert bar.text.startswith("13.00 s in all: init 2.00 s (15.4%), productive 6.00 s (46.2%)")
    assert [kind for kind, _ in times.marks] == ["evaluation", "checkpoint", "evaluation", "checkpoint", "evaluation"]
    assert times.marks[0][1] == pytest.approx(3.5 / 60)


def test_log_alone_tells_init_evaluations_and_the_rest(tmp_path: Path) -> None:
    log = (write_run(tmp_path / "run") / "result_0.txt").rename(tmp_path / "result_0.txt")
    times = timeline(read_recorded_run(log))
    assert times.seconds == pytest.approx({"init": 2.0, "productive": 6.5, "evaluation": 4.5})
    merged = time_bar(Timeline({"productive": 5.0}, ()), "", 5.0, meanings=True)
    assert merged.legend[0][1:] == (
        "train and all else",
        "5.00 s",
        "100.0%",
        "training and all parts that the log does not separate",
    )


def test_many_runs_share_a_legend_and_their_times_are_a_folded_table(tmp_path: Path) -> None:
    runs = made_runs(*(write_run(tmp_path / str(number), seed=number) for number in range(4)))
    timelines = [timeline(run.recorded) for run in runs]
    section = time_section(runs, timelines)
    assert section is not None
    bars = [part for part in section.parts if isinstance(part, Bar)]
    assert [bool(bar.legend) for bar in bars] == [True, False, False, False]
    assert all(value == share == "" and meaning for _, _, value, share, meaning in bars[0].legend)
    (table,) = [part for part in section.parts if isinstance(part, Table)]
    assert (table.summary, len(table.rows), table.head[0], table.head[-1]) == ("Times of the 4 runs", 4, "Run", "All")
    assert len(table.head) == len(bars[0].legend) + 2 == len(table.rows[0].cells)


def test_ribbon_lies_end_to_end_and_shows_what_lasted(ledger: RunStatus) -> None:
    parts = ribbon(ledger)
    assert parts[0].start == 0
    for before, after in pairwise(parts):
        assert after.start == pytest.approx(before.start + before.width)
    assert parts[-1].start + parts[-1].width == pytest.approx(WIDTH)
    cell_ms = ledger.whole_ms / CELLS
    for kind, ms in ledger.by_kind.items():
        drawn_ms = sum(part.width for part in parts if part.name == kind) / WIDTH * ledger.whole_ms
        assert drawn_ms == pytest.approx(ms, abs=8 * cell_ms)
    assert parts[0].title == "attempt 0001: queue, about 59.88 s"


def test_every_attempt_has_a_row_and_every_failure_a_place(ledger: RunStatus) -> None:
    words, bar, table, *_ = attempts_shown(ledger)
    assert isinstance(words, Words)
    assert isinstance(bar, Bar)
    assert isinstance(table, Table)
    assert words.text.startswith("Goodput 2.9% of 2 min 17 s, 5.2% without the queue: 3 attempts")
    assert bar.ends == ("2023-11-14 22:13:20Z", "2023-11-14 22:15:37Z")
    assert bar.text.endswith("Attempts: 0001 killed; 0002 hang; 0003 finished")
    assert bar.lines == [round(1000 * 76_150 / 137_350, 2), round(1000 * 122_750 / 137_350, 2)]
    rows = [[cell.text for cell in row.cells] for row in table.rows if row.look != "words"]
    assert [rows[0][0], *rows[0][2:]] == [
        "0001", "killed", "rank 3 on n2 in passes", "6", "2", "12.50 s", "0.0139", "again",
    ]  # fmt: skip
    assert (rows[2][2], rows[2][6]) == ("finished", "\N{EN DASH}")


def test_run_without_a_failure_has_a_sentence(tmp_path: Path) -> None:
    (words,) = attempts_shown(read_status(write_run(tmp_path / "run")))
    assert words == Words("Goodput 46.2% of 13.00 s: 1 attempt, 12 steps kept, 0 lost.")


SLOW = {"rank": 12, "host": "n2", "device": 4, "excess": 0.31, "block_s": 0.00301, "peers_block_s": 0.0023}


@pytest.mark.parametrize(
    ("key", "fields", "expected"),
    [
        ("device_health", {"rank": 3, "host": "n1", "device": 3, "found": "8 errors"},
         [("", "rank 3 on n1 GPU 3", "8 errors")]),
        ("slow_ranks", {"steps": 4100, "slow": [{**SLOW, "health": "hot"}], "recovered": [5]}, [
            ("4,100", "rank 12 on n2 GPU 4", "computes 31% slower: 0.00301 s a block, its peers 0.0023 s; hot"),
            ("4,100", "rank 5", "computes as fast as its peers again"),
        ]),
        ("speed_change", {"kind_of_change": "drop", "since": 4090, "before_s": 105.2, "now_s": 111.0},
         [("4,090", "all ranks", "steps became slower: 111 s, 105.2 s before")]),
        ("slow_ranks", {"steps": "x", "slow": [{"rank": None, "host": "<b>"}, 3], "recovered": 5},
         [("?", "rank ? on <b>", "computes ? slower: ? a block, its peers ?")]),
        ("slow_ranks", {"slow": "all"}, []),
        ("speed_change", {"since": [], "now_s": "fast"}, [("?", "all ranks", "steps became slower: ?, ? before")]),
    ],
)  # fmt: skip
def test_what_slowed_a_run(key: str, fields: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert list(slowness_of(RecordedEvent(1, key, None, fields))) == expected
