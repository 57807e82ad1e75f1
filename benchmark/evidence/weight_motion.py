"""How far each step of a chain moves each tensor: as far as Adam does, whatever the data were.

A value moves by at most 1.2 times the learning rate (with betas of 0.9 and 0.95 Adam's |m| is at most 1.17 sqrt(v)) and
by weight decay. So a projection, a sum with signs by chance, moves by about the learning rate times the square root of
the tensor's size; projections that somebody draws at random are far outside. Measured on the rehearsal, 223 steps of 52
tensors: 0.11 in the median, 1.8 at most, and no tensor of any step stays as it was.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from benchmark.evidence.chain_links import Chain
from benchmark.evidence.link_contents import StepLink
from benchmark.evidence.mismatch import Mismatch
from benchmark.evidence.tensor_prints import PRINT, PROJECTION, from_text
from stage.errors import InputError

MOST_MOVED = 20.0
"""Of learning rate times square root of the size: eight standard deviations of a projection whose values all move by
Adam's most, and as much again for the decay of weights."""
ROUNDING = 2.0**-22
"""Of a projection: two of them are rounded to float32."""
ENOUGH_TENSORS = 8
"""From which on it is no accident that most projections are the same in float32."""

Prints = tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]
"""Fingerprints and projections after a step."""


def unlikely_motion(chain: Chain) -> Iterator[Mismatch]:
    """Steps that left tensors as they were, or moved them as no update does."""
    begin = chain.begin
    if begin is None or len(begin.names) != len(begin.sizes):
        return  # which chain_checks.py tells
    names, sizes = begin.names, np.array(begin.sizes, np.float64)
    before: tuple[int, Prints] | None = None
    for number, link in sorted(chain.steps.items()):
        after = _prints(link, len(names))
        if after is not None and before is not None and before[0] == number - 1:
            yield from _motion(link, before[1], after, names, sizes)
        before = None if after is None else (number, after)


def _prints(link: StepLink, tensors: int) -> Prints | None:
    """None where they cannot be read, which chain_prints.py tells."""
    try:
        weights = from_text(link.weights, PRINT, tensors, "")
        return weights, from_text(link.projections, PROJECTION, tensors, "").astype(np.float64)
    except InputError:
        return None


def _motion(
    link: StepLink, before: Prints, after: Prints, names: tuple[str, ...], sizes: npt.NDArray[np.float64]
) -> Iterator[Mismatch]:
    same_bits, same_sum = after[0] == before[0], after[1] == before[1]
    other_sum = same_bits & ~same_sum & ~(np.isnan(after[1]) & np.isnan(before[1]))
    if other_sum.any():
        due = "the weights are those before the step"
        yield Mismatch(link.step, "projections", _named(other_sum, names), due)
    moving = not link.skipped and link.learning_rate > 0
    if moving and same_bits.any() and not same_bits.all():  # all of them: chain_prints.py
        yield Mismatch(link.step, "weights", _named(same_bits, names), "as before; an update moves every tensor")
    if moving and same_sum.sum() > len(names) / 2 and (same_sum & ~same_bits).sum() >= ENOUGH_TENSORS:
        yield Mismatch(link.step, "projections", _named(same_sum, names), "as before; an update moves them")
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.abs(after[1] - before[1]) - ROUNDING * np.maximum(np.abs(after[1]), np.abs(before[1]))
        far = ~(moved <= MOST_MOVED * link.learning_rate * np.sqrt(sizes)) & ~same_bits
    if far.any():
        due = f"at most {MOST_MOVED:g} learning rates times the root of their sizes from the step before"
        yield Mismatch(link.step, "projections", _named(far, names), due)


def _named(which: npt.NDArray[np.bool_], names: tuple[str, ...]) -> str:
    return f"{which.sum()} of {len(names)} tensors, as {names[int(np.argmax(which))]}"
