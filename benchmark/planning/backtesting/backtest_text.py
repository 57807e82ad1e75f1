"""The backtest for people: as text, and as the tables of docs/planning.md."""

from collections.abc import Iterator

from benchmark.planning.backtesting.backtest import Backtest, Comparison, ErrorSummary
from benchmark.planning.backtesting.fit_constants import FITTED, ONE_IN
from benchmark.planning.step_model.machine_constants import Constant

BEGIN, END = "<!-- backtest: written by python -m tests.speed.fit_plan -->", "<!-- /backtest -->"


def format_backtest(tested: Backtest) -> str:
    """All results, a line each, then the errors."""
    wide = max(len(each.id) for each in tested.comparisons)
    lines = [f"{'result':<{wide}} {'stack':<18} {'layout':<34} {'published':>10} {'predicted':>10} {'error':>7}"]
    lines += [
        f"{each.id:<{wide}} {each.stack:<18} {each.layout:<34} {each.published_s:>8.3f} s "
        f"{each.predicted_s:>8.3f} s {each.error:>+7.1%}{_marks(each)}"
        for each in tested.comparisons
    ]
    if tested.left_aside:
        lines.append(f"stack not described, left aside: {', '.join(tested.left_aside)}")
    lines += ["", f"{'errors of':<50} {'results':>7} {'median':>7} {'9 of 10':>8} {'largest':>8} {'covered':>8}  of"]
    lines += [
        f"{group.group:<50} {group.results:>7} {group.median:>7.1%} {group.nine_of_ten:>8.1%} "
        f"{group.largest:>8.1%} {group.covered:>8.0%}  {group.largest_id}"
        for group in (*tested.summaries, *tested.leave_out)
    ]
    return "\n".join(lines)


def _marks(each: Comparison) -> str:
    words = (
        ("fitted", each.used),
        ("unseen", each.unseen),
        ("topology guessed", each.guessed),
        (f"contradicted: {each.doubt}", each.doubt),
    )
    return "".join(f" {word}" for word, holds in words if holds)


def markdown_tables(tested: Backtest, constants: dict[str, Constant]) -> str:
    """What stands between the marks in docs/planning.md."""
    lines = [BEGIN, "", *_errors((*tested.summaries, *tested.leave_out)), "", *_fitted(constants), ""]
    lines += ["| result | stack | layout | published | predicted | error | |", "|---|---|---|---:|---:|---:|---|"]
    lines += [
        f"| {each.id} | {each.stack} | {each.layout} | {each.published_s:.3f} s | {each.predicted_s:.3f} s | "
        f"{each.error:+.1%} |{_marks(each)} |"
        for each in tested.comparisons
    ]
    return "\n".join([*lines, "", END])


def _errors(groups: tuple[ErrorSummary, ...]) -> Iterator[str]:
    yield "| errors of | results | median | 9 of 10 below | largest | within 4 % | above 12 % | in the interval |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for group in groups:
        yield (
            f"| {group.group} | {group.results} | {group.median:.1%} | {group.nine_of_ten:.1%} | {group.largest:.1%} | "
            f"{group.within_4:.0%} | {group.above_12} | {group.covered:.0%} |"
        )


def _fitted(constants: dict[str, Constant]) -> Iterator[str]:
    yield f"Constants fitted to one in {ONE_IN} of the results whose topology is published:"
    yield ""
    yield "| constant | value | plausible | range from |"
    yield "|---|---:|---:|---|"
    for name in FITTED:
        constant = constants[name]
        yield f"| {name} | {constant.value:.4g} | {constant.low:g} to {constant.high:g} | {constant.source} |"
