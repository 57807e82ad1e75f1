"""The ribbon and the table of attempts."""

from itertools import pairwise
from pathlib import Path

import pytest

from benchmark.report.goodput_figure import CELLS, WIDTH, attempts_shown, ribbon
from benchmark.status.run_status import RunStatus, read_status
from tests.benchmark.report.runs import MadeRun, write_run
from tests.benchmark.status.supervised_run import SupervisedRun, killed_and_hung


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> RunStatus:
    return read_status(killed_and_hung(tmp_path_factory.mktemp("goodput") / "run"))


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


def test_every_attempt_has_a_line_and_every_failure_a_place(ledger: RunStatus) -> None:
    shown = attempts_shown(ledger)
    assert shown.text.startswith("Goodput 2.9% of 137.3 s, 5.2% without the queue: 3 attempts")
    assert (shown.begin, shown.end) == ("2023-11-14 22:13:20Z", "2023-11-14 22:15:37Z")
    assert shown.alt.endswith("Attempts: 0001 killed; 0002 hang; 0003 finished")
    assert shown.failures == [round(1000 * 76_150 / 137_350, 2), round(1000 * 122_750 / 137_350, 2)]
    first = shown.lines[0]
    assert (first.name, first.kind, first.how, first.where) == ("0001", "bad", "killed", "rank 3 on n2 in passes")
    assert (first.steps, first.lost, first.cost, first.hours, first.decided) == ("6", "2", "12.50 s", "0.0139", "again")
    assert (shown.lines[2].kind, shown.lines[2].cost) == ("good", "\N{EN DASH}")


def test_run_without_a_failure_has_neither(tmp_path: Path) -> None:
    shown = attempts_shown(read_status(write_run(tmp_path / "run")))
    assert shown.text == "Goodput 46.2% of 13.00 s: 1 attempt, 12 steps kept, 0 lost."
    assert (list(shown.ribbon), list(shown.lines), list(shown.notes)) == ([], [], [])


def test_clocks_jump_is_a_note(tmp_path: Path) -> None:
    run = MadeRun(tmp_path / "run")
    run.begin()
    run.step()
    run.wait(-60)
    run.step()
    run.step()
    (note,) = attempts_shown(read_status(run.end())).notes
    assert note.startswith("The clock went back by 59.500 s")


def test_long_idle_time_costs_no_more_than_its_cells(tmp_path: Path) -> None:
    """A month between two attempts of a few seconds."""
    run = SupervisedRun(tmp_path / "run")
    run.launch()
    run.step()
    run.ended(70, "again", "")
    run.wait(30 * 86_400)
    run.launch()
    run.step()
    assert [part.name for part in ribbon(read_status(run.finish()))] == ["idle"]
