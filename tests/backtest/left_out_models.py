"""Errors of published steps whose model the constants were not fitted to, from which intervals are made.

Steps of a model err alike: of NeMo's FP8 steps, the step model has all six of Llama 3.1 405B 6 to 8 % too long, and all
six of 70B 5 to 6 % too short. So each fit leaves out all steps of a stack's model, whose steps are then predicted. Each
model counts once, however many steps of it are published.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmark.planning.step_model.machine_constants import MachineConstants
from tests.backtest.fit_constants import fit, log_errors
from tests.backtest.published_results import PublishedResult

ENOUGH = 20
"""Steps of a stack in a number format by which its own error is known."""
FORMATS = ("bf16", "fp8")


@dataclass(frozen=True)
class LeftOutModel:
    """The errors of a stack's steps of a model and number format, by constants fitted without that model."""

    stack: str
    hidden_size: int
    sequence: int
    precision: str
    errors: tuple[float, ...]
    """Predicted over published, less 1."""

    def __str__(self) -> str:
        return f"{self.stack}, hidden {self.hidden_size:,}, sequence {self.sequence:,}, {self.precision}"


def leave_models_out(results: Sequence[PublishedResult], table: MachineConstants) -> Iterator[LeftOutModel]:
    """Yield the errors of each model of each stack; results of a guessed topology and those kept back take no part."""
    known = [result for result in results if not (result.guessed or result.kept_back)]
    for model in dict.fromkeys(map(_model, known)):
        rest = [result for result in known if result.fitted and _model(result) != model]
        values = fit(rest, table)
        for precision in FORMATS:
            steps = [result for result in known if _model(result) == model and result.work.precision == precision]
            if steps:
                yield LeftOutModel(*model, precision, tuple(np.expm1(log_errors(steps, table, values)).tolist()))


def _model(result: PublishedResult) -> tuple[str, int, int]:
    """Return stack, width and sequence: a model cut to fewer layers is the same model."""
    return result.work.stack, result.work.model.hidden_size, result.work.model.seq_length


def nine_of_ten(models: Sequence[LeftOutModel]) -> float:
    """Return the absolute error that nine of ten steps do not exceed, if each model counts once."""
    weighted = sorted((abs(error), 1 / len(model.errors)) for model in models for error in model.errors)
    shares = np.cumsum([weight for _, weight in weighted])
    return weighted[int(np.searchsorted(shares, 0.9 * shares[-1] * (1 - 1e-9)))][0]


def errors_of_stacks(models: Sequence[LeftOutModel], stacks: Sequence[str]) -> dict[str, float]:
    """Return the constants ``error_bf16`` and ``error_fp8`` of each stack: its own where enough of its steps are
    published, else the larger of its own and that of all."""
    errors = {}
    for precision in FORMATS:
        in_format = [model for model in models if model.precision == precision]
        for stack in stacks:
            own = [model for model in in_format if model.stack == stack]
            enough = sum(len(model.errors) for model in own) >= ENOUGH
            error = max(nine_of_ten(own) if own else 0.0, 0.0 if enough else nine_of_ten(in_format))
            errors[f"stacks.{stack}.error_{precision}"] = error
    return errors
