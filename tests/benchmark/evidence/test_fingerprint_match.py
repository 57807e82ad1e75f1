"""Links of a run and of its replay."""

import dataclasses
import math

import numpy as np
import pytest

from benchmark.evidence.fingerprint_match import (
    TOLERANCES,
    Tensors,
    evaluation_deviations,
    figure_apart,
    state_deviations,
    step_deviations,
    weight_distances,
)
from benchmark.evidence.link_contents import EvaluationLink, StatePrint, StepLink
from benchmark.evidence.tensor_prints import PRINT, PROJECTION, as_text

TENSORS = Tensors([f"t{number}" for number in range(6)], [100] * 6)


def link(prints: list[int], projections: list[float], loss: float = 2.5) -> StepLink:
    texts = as_text(np.array(prints, np.uint64), PRINT), as_text(np.array(projections), PROJECTION)
    return StepLink(3, 0, 0, "0", "0", loss, 1.0, 1e-3, False, *texts)


RECORDED = link([0, 1, 2, 3, 4, 5], [0.0] * 6)


def told(found: StepLink, precision: str | None = None, moved: float = 1e-2) -> list[str]:
    tolerance = TOLERANCES[precision] if precision else None
    return [one.line() for one in step_deviations(RECORDED, found, TENSORS, tolerance, moved)]


def test_the_same() -> None:
    assert told(RECORDED) == []
    nan = dataclasses.replace(RECORDED, loss=math.nan)
    assert list(step_deviations(nan, nan, TENSORS, None, 1.0)) == []


def test_weights_are_named_by_distance() -> None:
    found = link([0, 9, 2, 9, 4, 9], [0.0, 0.01, 0.0, 0.04, 0.0, 0.03])
    (line,) = told(found)
    assert line == (
        "step 3: weights of 3 of 6 tensors: recorded others, found t3 0.4, t5 0.3, t1 0.1 (steps of the learning rate "
        "apart)"
    )
    assert weight_distances(RECORDED, found, TENSORS, 1e-2) == pytest.approx([0, 0.1, 0, 0.4, 0, 0.3])
    assert told(found, "bf16") == []  # bits may differ, and none is too far
    (line,) = told(found, "fp32")
    assert "weights of 3 of 6 tensors" in line
    assert "0.05 allowed" in line


@pytest.mark.parametrize(
    ("loss", "bits", "fp32", "bf16"),
    [(2.5000001, 1, 0, 0), (2.501, 1, 1, 0), (2.51, 1, 1, 1), (math.nan, 1, 1, 1), (math.inf, 1, 1, 1)],
)
def test_loss(loss: float, bits: int, fp32: int, bf16: int) -> None:
    found = dataclasses.replace(RECORDED, loss=loss)
    assert [len(told(found)), len(told(found, "fp32")), len(told(found, "bf16"))] == [bits, fp32, bf16]


@pytest.mark.parametrize(
    "change", [{"samples": "1"}, {"tokens": "1"}, {"learning_rate": 1e-3 + 1e-18}, {"skipped": True}]
)
def test_what_no_layout_changes_is_exact(change: dict[str, object]) -> None:
    found = dataclasses.replace(RECORDED, **change)  # type: ignore[arg-type]
    assert len(told(found, "bf16")) == 1


def test_weights_that_are_no_numbers_are_no_match() -> None:
    found = link([9] * 6, [math.nan] * 6)
    assert "weights of 6 of 6 tensors" in told(found, "bf16")[0]
    garbled = dataclasses.replace(RECORDED, weights="?", projections="?")
    assert "weights of 6 of 6 tensors" in told(garbled, "bf16")[0]


def test_states_and_evaluations() -> None:
    state = StatePrint(RECORDED.weights, RECORDED.weights, RECORDED.weights)
    other = dataclasses.replace(state, exp_avg_sq=link([0, 1, 7, 3, 4, 8], [0.0] * 6).weights)
    assert list(state_deviations(3, state, state, TENSORS)) == []
    (deviation,) = state_deviations(3, state, other, TENSORS)
    assert deviation.line() == (
        "step 3: exp_avg_sq of the checkpoint: recorded t2, t5, found other values in the checkpoint"
    )
    evaluation = EvaluationLink(3, 0, 2.75, 100)
    assert list(evaluation_deviations(evaluation, evaluation, None)) == []
    better = dataclasses.replace(evaluation, log_perplexity=2.7, scored_tokens=99)
    assert [one.what for one in evaluation_deviations(better, evaluation, TOLERANCES["bf16"])] == [
        "scored tokens",
        "log perplexity",
    ]


def test_how_far_apart() -> None:
    assert figure_apart(1.0, 2.0) == 0.5
    assert figure_apart(math.nan, math.nan) == 0.0
    assert math.isnan(figure_apart(math.nan, 1.0))
    assert figure_apart(1e-310, 0.0) < 1e300
