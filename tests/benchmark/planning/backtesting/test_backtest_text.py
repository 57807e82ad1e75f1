"""The tables of docs/planning.md are those that the constants give now."""

from benchmark.planning.backtesting.backtest import backtest
from benchmark.planning.backtesting.backtest_text import BEGIN, END, format_backtest, markdown_tables
from benchmark.planning.step_model.machine_constants import committed_constants
from tests.support import REPOSITORY


def test_the_page_is_current() -> None:
    page = (REPOSITORY / "docs" / "planning.md").read_text()
    table = markdown_tables(backtest(), committed_constants())
    assert table in page, "draw it anew: python -m tests.speed.fit_plan --draw"
    assert page.count(BEGIN) == page.count(END) == 1


def test_text_marks_what_was_fitted_or_guessed() -> None:
    lines = format_backtest(backtest()).splitlines()
    assert sum(line.endswith(" fitted") for line in lines) > 50
    assert sum(line.endswith("topology guessed") for line in lines) > 20
    assert any(line.endswith("contradicted: 113.01 s at batch 1568 and 114.11 s at 2048") for line in lines)
