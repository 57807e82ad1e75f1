"""Predicted against published steps: errors of what was used for fitting, of what was not, and of groups left out."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmark.planning.backtesting.fit_constants import (
    ComparedResult,
    comparable,
    fit,
    topology_guessed,
    used_for_fitting,
)
from benchmark.planning.backtesting.published_results import PublishedResult
from benchmark.planning.backtesting.published_table import load_published_results
from benchmark.planning.step_model.machine_constants import Constant, committed_constants
from benchmark.planning.step_model.step_interval import predict_step
from stage.errors import InputError

LEAVE_OUT = Path(__file__).with_name("leave_out.json")
"""Errors of groups that were left out of a fit of their own; written by tests/speed/fit_plan.py."""
LEAVE_OUT_ROUNDS = 3
"""From the constants of the whole fit on; those that nothing holds any more go back to the middle of their range."""
GROUPS: Mapping[str, Callable[[PublishedResult], bool]] = {
    "accelerator A100": lambda result: result.accelerator.startswith("A100"),
    "accelerator H100": lambda result: result.accelerator == "H100 SXM",
    "precision BF16": lambda result: result.precision in ("bf16", "fp16"),
    "precision FP8": lambda result: result.precision in ("fp8", "mxfp8"),
    "more than 1,024 devices": lambda result: result.devices > 1024,
    "MLPerf": lambda result: result.stack == "mlperf_nvidia",
    "Llama 3": lambda result: result.model.name.startswith("llama3"),
    "GPT-3 175B": lambda result: result.model.name == "gpt3-175b",
}
"""What is left out of fits: all that the condition holds for."""


@dataclass(frozen=True)
class Comparison:
    """A published step and the model's."""

    id: str
    source: str
    url: str
    stack: str
    """Ours: a code's releases are told apart."""
    accelerator: str
    model: str
    precision: str
    devices: int
    layout: str
    """TP x CP x PP x DP, chunks, micro-batch."""
    published_s: float
    predicted_s: float
    used: bool
    """For fitting."""
    guessed: bool
    """Whether sizes that the step depends on are not in the source."""
    low_s: float
    high_s: float
    """Interval of the prediction, which nine of ten published steps should lie in."""
    doubt: str = ""
    """Why the figure may be wrong, such as its neighbours in the same table."""
    unseen: bool = False
    """Whether it was added after the model and its constants were done."""

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted_s / self.published_s - 1

    @property
    def within(self) -> bool:
        """Whether the published step lies in the prediction's interval."""
        return self.low_s <= self.published_s <= self.high_s


@dataclass(frozen=True)
class ErrorSummary:
    """Of the absolute relative errors of some results."""

    group: str
    results: int
    median: float
    nine_of_ten: float
    """What nine of ten stay below."""
    largest: float
    largest_id: str
    within_4: float
    """Share of them."""
    above_12: int
    covered: float
    """Share of the published steps that lie in the intervals of their predictions."""


@dataclass(frozen=True)
class Backtest:
    """All comparisons, and what they come to."""

    comparisons: tuple[Comparison, ...]
    summaries: tuple[ErrorSummary, ...]
    leave_out: tuple[ErrorSummary, ...]
    """Of groups, predicted by constants that were fitted without them."""
    left_aside: tuple[str, ...]
    """Ids of results whose stack is not described in stacks.py."""


def backtest(constants: Mapping[str, Constant] | None = None) -> Backtest:
    """Every published result of the table with the constants of this repository.

    Raises InputError for a table that cannot be read.
    """
    constants = committed_constants() if constants is None else constants
    results = load_published_results()
    compared = comparable(results)
    used = {each.result.id for each in used_for_fitting(compared)}
    comparisons = tuple(compare(each, constants, used) for each in compared)
    known = {each.id for each in comparisons}
    return Backtest(
        comparisons,
        summaries(comparisons),
        read_leave_out(),
        tuple(result.id for result in results if result.id not in known),
    )


def compare(each: ComparedResult, constants: Mapping[str, Constant], used: set[str]) -> Comparison:
    predicted = predict_step(each.work, constants)
    result, layout = each.result, each.work.layout
    context = f"CP {layout.context_parallel} " if layout.context_parallel > 1 else ""
    chunks = f"/{layout.pipeline_chunks}" if layout.pipeline_chunks > 1 else ""
    shape = (
        f"TP {layout.tensor_parallel} {context}PP {layout.pipeline_parallel}{chunks} DP {layout.data_parallel} "
        f"x {layout.micro_batches} x {layout.micro_batch_size}"
    )
    return Comparison(
        id=result.id,
        source=result.source.title,
        url=result.source.url,
        stack=each.work.stack,
        accelerator=result.accelerator,
        model=result.model.name,
        precision=result.precision,
        devices=result.devices,
        layout=shape,
        published_s=result.step_s,
        predicted_s=predicted.step_s,
        used=result.id in used,
        guessed=topology_guessed(result),
        low_s=predicted.low_s,
        high_s=predicted.high_s,
        doubt=result.doubt,
        unseen=result.unseen,
    )


def summaries(comparisons: Sequence[Comparison]) -> tuple[ErrorSummary, ...]:
    """Of all that was not used for fitting, and of parts of it; what was added later than the model is apart."""
    stated = [each for each in comparisons if not each.used and not each.guessed and not each.unseen]
    groups = {
        "not used for fitting, topology published": stated,
        "of these, not contradicted by the table they are from": [each for each in stated if not each.doubt],
        "not used, topology partly guessed": [each for each in comparisons if not each.used and each.guessed],
        "used for fitting": [each for each in comparisons if each.used],
        "added after the fit, model unchanged": [each for each in comparisons if each.unseen],
    }
    for name, value in (("precision", "bf16"), ("precision", "fp8")):
        groups[f"not used, {value}"] = [each for each in stated if getattr(each, name) == value]
    for accelerator in dict.fromkeys(each.accelerator for each in stated):
        groups[f"not used, {accelerator}"] = [each for each in stated if each.accelerator == accelerator]
    for stack in dict.fromkeys(each.stack for each in stated):
        groups[f"not used, stack {stack}"] = [each for each in stated if each.stack == stack]
    return tuple(summary(name, each) for name, each in groups.items() if each)


def summary(group: str, comparisons: Sequence[Comparison]) -> ErrorSummary:
    """Of one or more comparisons."""
    errors = np.array([abs(each.error) for each in comparisons])
    return ErrorSummary(
        group,
        len(errors),
        float(np.median(errors)),
        float(np.quantile(errors, 0.9)),
        float(errors.max()),
        comparisons[int(errors.argmax())].id,
        float(np.mean(errors <= 0.04)),
        int(np.sum(errors > 0.12)),
        float(np.mean([each.within for each in comparisons])),
    )


def left_out(group: str, constants: Mapping[str, Constant]) -> ErrorSummary | None:
    """Errors of a group's results by constants fitted without any of them; None where the table has none."""
    compared = comparable(load_published_results())
    stated = [each for each in compared if not topology_guessed(each.result) and not each.result.unseen]
    outside = [each for each in stated if GROUPS[group](each.result)]
    inside = [each for each in used_for_fitting(compared) if not GROUPS[group](each.result)]
    if not outside or not inside:
        return None
    values = fit(inside, constants, rounds=LEAVE_OUT_ROUNDS)
    refitted = {name: replace(constant, value=values[name]) for name, constant in constants.items()}
    return summary(f"without {group}", [compare(each, refitted, set()) for each in outside])


def read_leave_out(path: Path = LEAVE_OUT) -> tuple[ErrorSummary, ...]:
    """Raises InputError for a file that is not such a list."""
    try:
        return tuple(ErrorSummary(**row) for row in json.loads(path.read_text()))
    except (json.JSONDecodeError, TypeError) as error:
        raise InputError(f"{path}: no list of errors: {error}; write it anew: python -m tests.speed.fit_plan") from None


def write_leave_out(found: Sequence[ErrorSummary], path: Path = LEAVE_OUT) -> None:
    path.write_text(json.dumps([dataclasses.asdict(each) for each in found], indent=1) + "\n")
