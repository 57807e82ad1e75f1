"""Fit the constants of the model of a step anew, and write what follows from them.

    python -m tests.speed.fit_plan            # machine_constants.toml, leave_out.json, the tables of docs/planning.md
    python -m tests.speed.fit_plan --draw     # errors and tables alone, from the constants as they are

Takes some minutes: the constants are fitted once, and once without each group of results.
"""

import argparse
import re
from pathlib import Path

from benchmark.planning.backtesting.backtest import GROUPS, backtest, left_out, summaries, write_leave_out
from benchmark.planning.backtesting.backtest_text import BEGIN, END, markdown_tables
from benchmark.planning.backtesting.fit_constants import (
    DERIVED,
    FITTED,
    comparable,
    fit,
    used_for_fitting,
)
from benchmark.planning.backtesting.published_table import load_published_results
from benchmark.planning.layout_search.scaling_figure import scaling_svg
from benchmark.planning.layout_search.scaling_table import scaled_runs, scaling_markdown
from benchmark.planning.step_model.machine_constants import TABLE, read_constants
from benchmark.planning.step_model.stacks import STACKS

ENOUGH = 20
"""Results of a stack by which its own error is known."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "planning.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="only write errors and the tables of docs/planning.md")
    if parser.parse_args().draw:
        write_errors()
    else:
        refit()
    PAGE.write_text(drawn_page(PAGE.read_text()))
    constants = read_constants()
    series = [
        (name, scaled_runs(constants, growing=growing))
        for name, growing in (("batch 2,048", False), ("four samples per GPU, at most 8,192", True))
    ]
    PAGE.with_name("planning_scale.svg").write_text(scaling_svg(series))


def refit() -> None:
    constants = read_constants()
    values = fit(used_for_fitting(comparable(load_published_results())), constants)
    changed = {name: values[name] for name in FITTED}
    changed |= {name: values[name] for name in DERIVED}
    text = TABLE.read_text()
    for name, value in changed.items():
        text = with_value(text, name, value)
    TABLE.write_text(text)
    write_errors()
    constants = read_constants()
    print({name: f"{constants[name].value:.4g}" for name in FITTED}, flush=True)
    write_leave_out([found for group in GROUPS if (found := left_out(group, constants)) is not None])


def write_errors() -> None:
    """Of all stacks, and of each: its own where enough of its results were not used, else the larger of the two."""
    by_name = {each.group: each for each in summaries(backtest(read_constants()).comparisons)}
    overall = by_name["not used for fitting, topology published"].nine_of_ten
    text = with_value(TABLE.read_text(), "backtest.error", overall)
    for stack in STACKS:
        own = by_name.get(f"not used, stack {stack}")
        error = overall if own is None else own.nine_of_ten
        if own is not None and own.results < ENOUGH:
            error = max(error, overall)
        text = with_value(text, f"stacks.{stack}.error", error)
    TABLE.write_text(text)


def with_value(text: str, name: str, value: float) -> str:
    """The table's text with one value replaced."""
    section, key = name.rsplit(".", 1)
    head, _, rest = section.partition(".")
    heading = f'[{head}."{rest}"]' if rest else f"[{head}]"
    before, found, after = text.partition(f"{heading}\n")
    assert found, heading
    return before + found + re.sub(
        rf"^{key} = {{ value = [^,]+,", f"{key} = {{ value = {value:.4g},", after, count=1, flags=re.MULTILINE
    )  # fmt: skip


def drawn_page(page: str) -> str:
    """The page with its generated tables as they follow from constants and results now."""
    constants = read_constants()
    page = _between(page, BEGIN, END, markdown_tables(backtest(constants), constants))
    scaling = scaling_markdown(constants)
    return _between(page, scaling.splitlines()[0], scaling.splitlines()[-1], scaling)


def _between(page: str, begin: str, end: str, new: str) -> str:
    before, found, rest = page.partition(begin)
    assert found, begin
    return before + new + rest.partition(end)[2]


if __name__ == "__main__":
    main()
