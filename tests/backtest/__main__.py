"""The step model against all published steps of the stacks that it describes: errors by stack.

python -m tests.backtest              # a line for each result, then the errors; ten seconds
python -m tests.backtest --json
python -m tests.backtest --errors     # fits without each model in turn, writes the stacks' errors; a minute
python -m tests.backtest --fit        # fits the constants anew, writes them and the errors
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmark.planning.step_model.machine_constants import TABLE, MachineConstants, read_constants
from benchmark.planning.step_model.simulated_step import simulate_step, step_influences, step_interval
from benchmark.planning.step_model.stacks import STACKS
from tests.backtest.fit_constants import DERIVED, FITTED, fit, with_values
from tests.backtest.left_out_models import errors_of_stacks, leave_models_out
from tests.backtest.published_results import (
    LOW_POWER,
    PublishedResult,
    backtest_constants,
    load_published_results,
    rates_of,
)


@dataclass(frozen=True)
class Comparison:
    """A published step and the model's."""

    result: PublishedResult
    predicted_s: float
    low_s: float
    high_s: float
    """Interval of the prediction, which should hold nine of ten published steps."""

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted_s / self.result.published_s - 1

    @property
    def within(self) -> bool:
        return self.low_s <= self.result.published_s <= self.high_s


@dataclass(frozen=True)
class ErrorSummary:
    """Of the absolute relative errors of some results."""

    group: str
    results: int
    median: float
    nine_of_ten: float
    """Nine of ten errors stay below it."""
    largest: float
    largest_id: str
    covered: float
    """Share of the published steps that lie in the intervals of their predictions."""


def compare(results: Sequence[PublishedResult], constants: MachineConstants) -> list[Comparison]:
    return [_compared(result, constants) for result in results]


def _compared(result: PublishedResult, constants: MachineConstants) -> Comparison:
    rates = rates_of(result.work, constants)
    step_s = simulate_step(result.work, rates).total
    low_s, high_s = step_interval(result.work, rates, step_s, step_influences(result.work, rates, step_s))
    return Comparison(result, step_s, low_s, high_s)


def summaries(comparisons: Sequence[Comparison]) -> list[ErrorSummary]:
    """Of everything held out whose topology is published, of its parts, and of the rest apart."""
    held = [each for each in comparisons if not (each.result.fitted or each.result.guessed or each.result.kept_back)]
    kept_back = [each for each in comparisons if each.result.kept_back]
    groups = {
        "held out": held,
        "held out, topology partly guessed": [each for each in comparisons if each.result.guessed],
        "fitted": [each for each in comparisons if each.result.fitted],
    }
    names: dict[str, Callable[[Comparison], str]] = {
        "stack": lambda each: each.result.work.stack,
        "precision": lambda each: each.result.work.precision,
        "accelerator": lambda each: each.result.work.accelerator,
    }
    for value in ("bf16", "fp8"):
        groups[f"all but kept back, {value}"] = [
            each for each in comparisons if each.result.work.precision == value and not each.result.kept_back
        ]
    for kind, name in names.items():
        for value in dict.fromkeys(map(name, held)):
            groups[f"held out, {kind} {value}"] = [each for each in held if name(each) == value]
    for each in kept_back:
        work = each.result.work
        groups.setdefault(f"kept back, {work.stack} on {work.accelerator}", []).append(each)
    return [_summary(group, some) for group, some in groups.items() if some]


def _summary(group: str, comparisons: Sequence[Comparison]) -> ErrorSummary:
    errors = np.array([abs(each.error) for each in comparisons])
    return ErrorSummary(
        group,
        len(errors),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        float(errors.max()),
        comparisons[int(errors.argmax())].result.id,
        float(np.mean([each.within for each in comparisons])),
    )


def table_text(comparisons: Sequence[Comparison]) -> str:
    """All results, a line each, then the errors."""
    lines = [f"{'result':<46} {'stack':<10} {'layout':<38} {'published':>10} {'predicted':>10} {'error':>7}"]
    for each in comparisons:
        result = each.result
        marks = " fitted" * result.fitted + " topology guessed" * result.guessed + " kept back" * result.kept_back
        lines.append(
            f"{result.id:<46} {result.work.stack:<10} {_layout(result):<38} {result.published_s:>8.3f} s "
            f"{each.predicted_s:>8.3f} s {each.error:>+7.1%}{marks}"
        )
    lines += ["", f"{'errors of':<50} {'results':>7} {'median':>7} {'9 of 10':>8} {'largest':>8} {'covered':>8}  of"]
    lines += [
        f"{group.group:<50} {group.results:>7} {group.median:>7.1%} {group.nine_of_ten:>8.1%} {group.largest:>8.1%} "
        f"{group.covered:>8.0%}  {group.largest_id}"
        for group in summaries(comparisons)
    ]
    return "\n".join(lines)


def _layout(result: PublishedResult) -> str:
    layout = result.work.layout
    context = f"CP {layout.context_parallel} " if layout.context_parallel > 1 else ""
    chunks = f"/{layout.pipeline_chunks}" if layout.pipeline_chunks > 1 else ""
    return (
        f"TP {layout.tensor_parallel} {context}PP {layout.pipeline_parallel}{chunks} DP {layout.data_parallel} "
        f"x {layout.micro_batches} x {layout.micro_batch_size}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--errors", action="store_true", help="write the errors of the stacks")
    parser.add_argument("--fit", action="store_true", help="fit the constants anew and write them, and the errors")
    chosen = parser.parse_args()
    if chosen.fit:
        write_fitted()
    if chosen.fit or chosen.errors:
        write_errors()
    compared = compare(load_published_results(), read_constants(TABLE, LOW_POWER))
    if chosen.json:
        rows = [{**dataclasses.asdict(each), "error": each.error} for each in compared]
        print(
            json.dumps({"comparisons": rows, "summaries": [dataclasses.asdict(each) for each in summaries(compared)]})
        )
    else:
        print(table_text(compared))
    return 0


def write_fitted() -> None:
    """Write the fitted constants."""
    results = load_published_results()
    values = fit([each for each in results if each.fitted], backtest_constants())
    changed = {name: values[name] for name in (*FITTED, *DERIVED)}
    for path in (TABLE, LOW_POWER):
        path.write_text(with_values(path.read_text(), changed))


def write_errors() -> None:
    """Write the errors of the stacks, and print those of each model left out of a fit."""
    models = []
    for model in leave_models_out(load_published_results(), read_constants(TABLE, LOW_POWER)):
        models.append(model)
        print(f"{model}:", *(f"{error:+.1%}" for error in model.errors), file=sys.stderr, flush=True)
    TABLE.write_text(with_values(TABLE.read_text(), errors_of_stacks(models, list(STACKS))))


if __name__ == "__main__":
    sys.exit(main())
