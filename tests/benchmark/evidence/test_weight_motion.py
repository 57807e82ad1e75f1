"""Chains whose weights move as no update moves them."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.evidence.link_contents import Content, StepLink
from benchmark.evidence.tensor_prints import PRINT, PROJECTION, as_text
from benchmark.evidence.weight_motion import MOST_MOVED, unlikely_motion
from tests.benchmark.evidence.test_chain_links import BEGIN, step, write

SIZES = tuple(100 * (number + 1) for number in range(20))
NAMES = tuple(f"tensor.{number}" for number in range(20))
RATE = 1e-3
RNG = np.random.default_rng(7)
START = 10 * RNG.standard_normal(20)
MOTION = RATE * np.sqrt(SIZES)
"""About what a step moves the projections by."""


def after(number: int, projections: npt.NDArray[np.float64], bits: npt.NDArray[np.int64] | None = None) -> StepLink:
    """A step's link; its fingerprints are those of no other step."""
    weights = np.arange(20) + 100 * number if bits is None else bits
    return dataclasses.replace(
        step(number),
        learning_rate=RATE,
        weights=as_text(weights, PRINT),
        projections=as_text(projections, PROJECTION),
    )


FIRST = after(1, START)


def told(second: StepLink, tmp_path: Path) -> list[str]:
    contents: list[Content] = [dataclasses.replace(BEGIN, names=NAMES, sizes=SIZES), FIRST, second]
    write(tmp_path / EVIDENCE, contents)
    return [one.line() for one in unlikely_motion(read_chain(tmp_path / EVIDENCE))]


def one(number: int, there: float, elsewhere: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(np.arange(20) == number, there, elsewhere)


MOVED = START + MOTION * RNG.standard_normal(20)
BITS_BEFORE = np.arange(20) + 100
BITS_AFTER = BITS_BEFORE + 100


@pytest.mark.parametrize(
    "second",
    [
        after(2, MOVED),
        after(2, START + 0.9 * MOST_MOVED * MOTION),
        dataclasses.replace(after(2, START, BITS_BEFORE), skipped=True, grad_norm=math.inf),
        after(2, START, BITS_BEFORE),  # all of them: chain_prints.py tells it
        after(2, np.where(np.arange(20) < 10, START, MOVED)),  # float32 may hide half of the motions
        after(3, -START),  # the step between is not there
        dataclasses.replace(after(2, MOVED), projections="?"),
    ],
)
def test_an_update_or_none(second: StepLink, tmp_path: Path) -> None:
    assert told(second, tmp_path) == []


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (
            after(2, START + 100),
            "step 2: projections: recorded 20 of 20 tensors, as tensor.0, found at most 20 learning rat",
        ),
        (
            after(2, one(3, START[3] + 1.1 * MOST_MOVED * MOTION[3], MOVED)),
            "step 2: projections: recorded 1 of 20 tensors, as tensor.3, found at most 20 learning rates",
        ),
        (
            after(2, one(3, math.nan, MOVED)),
            "step 2: projections: recorded 1 of 20 tensors, as tensor.3, found at most 20 learning rates",
        ),
        (
            after(2, one(5, START[5], MOVED), np.where(np.arange(20) == 5, BITS_BEFORE, BITS_AFTER)),
            "step 2: weights: recorded 1 of 20 tensors, as tensor.5, found as before; an update moves every tensor",
        ),
        (
            after(2, np.where(np.arange(20) < 11, START, MOVED)),
            "step 2: projections: recorded 11 of 20 tensors, as tensor.0, found as before; an update moves them",
        ),
        (
            dataclasses.replace(after(2, MOVED, BITS_BEFORE), skipped=True, grad_norm=math.inf),
            "step 2: projections: recorded 20 of 20 tensors, as tensor.0, found the weights are those",
        ),
    ],
)
def test_no_update(second: StepLink, expected: str, tmp_path: Path) -> None:
    [line] = told(second, tmp_path)
    assert line.startswith(expected)
