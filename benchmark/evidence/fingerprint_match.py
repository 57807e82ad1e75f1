"""Two links of the same step, of a run and of its replay: the same, or how far apart."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmark.evidence.link_contents import EvaluationLink, StatePrint, StepLink
from benchmark.evidence.mismatch import Mismatch
from benchmark.evidence.tensor_prints import PRINT, PROJECTION, from_text
from stage.errors import InputError

MOST_NAMED = 4
"""Tensors of a step that are named; the largest differences first."""


@dataclass(frozen=True)
class Tolerance:
    """How far a replay may be off that computes in another order, or on another device."""

    loss: float
    """Relative."""
    grad_norm: float
    """Relative."""
    weights: float
    """Of a tensor: L2 norm of the difference, by projections, in units of what every one of its values would move by
    with the learning rates since the checkpoint."""
    log_perplexity: float
    """Relative."""


TOLERANCES = {
    "fp32": Tolerance(loss=5e-5, grad_norm=0.01, weights=0.05, log_perplexity=5e-5),
    "bf16": Tolerance(loss=2e-3, grad_norm=0.25, weights=0.5, log_perplexity=2e-3),
}
"""By precision; measured, with what they let through, in docs/evidence.md."""


@dataclass(frozen=True)
class Tensors:
    """Of a chain."""

    names: Sequence[str]
    sizes: Sequence[int]


def state_deviations(step: int, recorded: StatePrint, found: StatePrint, tensors: Tensors) -> Iterator[Mismatch]:
    """Weights and moments of a checkpoint, which no topology changes."""
    for kind in ("weights", "exp_avg", "exp_avg_sq"):
        one, other = getattr(recorded, kind), getattr(found, kind)
        if one == other:
            continue
        differ = _bits(one, tensors) != _bits(other, tensors)
        named = [name for name, is_other in zip(tensors.names, differ, strict=True) if is_other]
        yield Mismatch(step, f"{kind} of the checkpoint", _listed(named), "other values in the checkpoint")


def step_deviations(
    recorded: StepLink, found: StepLink, tensors: Tensors, tolerance: Tolerance | None, moved: float
) -> Iterator[Mismatch]:
    """``tolerance``: None compares to the bit. ``moved``: sum of the learning rates since the checkpoint."""
    for name in ("first_sample", "samples", "tokens", "learning_rate", "skipped"):
        one, other = getattr(recorded, name), getattr(found, name)
        if one != other:
            yield Mismatch(recorded.step, name.replace("_", " "), str(one), str(other), "these are exact")
    figures = (
        ("loss", tolerance.loss if tolerance else 0.0),
        ("grad_norm", tolerance.grad_norm if tolerance else 0.0),
    )
    for name, allowed in figures:
        yield from _figure(recorded.step, name, getattr(recorded, name), getattr(found, name), allowed)
    yield from _weights(recorded, found, tensors, tolerance, moved)


def evaluation_deviations(
    recorded: EvaluationLink, found: EvaluationLink, tolerance: Tolerance | None
) -> Iterator[Mismatch]:
    """Of the validation set."""
    if recorded.scored_tokens != found.scored_tokens:
        numbers = str(recorded.scored_tokens), str(found.scored_tokens)
        yield Mismatch(recorded.step, "scored tokens", *numbers, "another validation set")
    allowed = tolerance.log_perplexity if tolerance else 0.0
    yield from _figure(recorded.step, "log perplexity", recorded.log_perplexity, found.log_perplexity, allowed)


def weight_distances(recorded: StepLink, found: StepLink, tensors: Tensors, moved: float) -> npt.NDArray[np.float64]:
    """Of each tensor: how far apart the weights are, in units of ``Tolerance.weights``."""
    one, other = (_projections(link.projections, tensors) for link in (recorded, found))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(one - other) / (max(moved, 1e-300) * np.sqrt(np.maximum(tensors.sizes, 1)))


def _weights(
    recorded: StepLink, found: StepLink, tensors: Tensors, tolerance: Tolerance | None, moved: float
) -> Iterator[Mismatch]:
    if recorded.weights == found.weights and recorded.projections == found.projections:
        return
    count, other_bits = len(tensors.names), _bits(recorded.weights, tensors) != _bits(found.weights, tensors)
    far = weight_distances(recorded, found, tensors, moved)
    allowed = 0.0 if tolerance is None else tolerance.weights
    bad = other_bits if tolerance is None else ~(far <= allowed)
    if not bad.any():
        if tolerance is None:
            yield Mismatch(recorded.step, "projections", "others", "than the weights have", "the weights are the same")
        return
    order = [int(place) for place in np.argsort(-np.nan_to_num(far, nan=np.inf)) if bad[place]]
    named = [f"{tensors.names[place]} {far[place]:.2g}" for place in order[:MOST_NAMED]]
    more = f" and {len(order) - MOST_NAMED} more" if len(order) > MOST_NAMED else ""
    unit = f"steps of the learning rate apart, {allowed:g} allowed" if tolerance else "steps of the learning rate apart"
    yield Mismatch(
        recorded.step, f"weights of {len(order)} of {count} tensors", "others", f"{', '.join(named)}{more}", unit
    )


def _bits(text: str, tensors: Tensors) -> npt.NDArray[np.uint64]:
    """A fingerprint for each tensor; 0 for all of them where the text cannot be read."""
    try:
        return from_text(text, PRINT, len(tensors.names), "")
    except InputError:
        return np.zeros(len(tensors.names), np.uint64)


def _projections(text: str, tensors: Tensors) -> npt.NDArray[np.float64]:
    """A projection for each tensor; NaN for all of them where the text cannot be read."""
    try:
        return from_text(text, PROJECTION, len(tensors.names), "").astype(np.float64)
    except InputError:
        return np.full(len(tensors.names), np.nan)


def _figure(step: int, name: str, recorded: float, found: float, allowed: float) -> Iterator[Mismatch]:
    apart = figure_apart(recorded, found)
    if not apart <= allowed:
        far = f"{apart:.2g} of it apart, {f'{allowed:g} allowed' if allowed else 'the same bits are due'}"
        yield Mismatch(step, name.replace("_", " "), repr(recorded), repr(found), far)


def figure_apart(recorded: float, found: float) -> float:
    """Relative; not a number where only one of them is none."""
    if recorded == found or (math.isnan(recorded) and math.isnan(found)):
        return 0.0
    return abs(recorded - found) / max(abs(found), 1e-300)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
