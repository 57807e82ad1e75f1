"""Figures that no training gives."""

import dataclasses
import math
from pathlib import Path

import pytest

from benchmark.evidence.chain_checks import chain_deviations
from benchmark.evidence.chain_figures import MOST_ALIKE, moments_still, unlikely_figures
from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.evidence.link_contents import CheckpointLink, Content, StatePrint, StepLink
from tests.benchmark.evidence.test_chain_checks import AFTER_3, HONEST
from tests.benchmark.evidence.test_chain_links import BEGIN, SIZES, STATE, step, write
from tests.benchmark.tiny import TINY


def losses(*values: float) -> list[StepLink]:
    """Steps with different norms."""
    steps = [step(number + 1, value) for number, value in enumerate(values)]
    return [dataclasses.replace(link, grad_norm=1 + link.step / 64) for link in steps]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (losses(2.5, -2.5), ["step 2: loss: recorded -2.5, found a cross entropy: a number above 0"]),
        (losses(2.5, 1e39), ["step 2: loss: recorded 1e+39, found a cross entropy: a number above 0"]),
        (losses(math.nan), ["step 1: loss: recorded nan, found a cross entropy: a number above 0"]),
        ([dataclasses.replace(step(1, math.nan), skipped=True, grad_norm=math.nan)], []),
        (
            [dataclasses.replace(step(1), grad_norm=0.0)],
            ["step 1: gradient norm: recorded 0.0, found a number above 0"],
        ),
        (losses(*[2.5] * MOST_ALIKE), []),
        (
            losses(3.5, *[2.5] * 8),
            ["step 2: loss: recorded 2.5 in 8 steps, found at most 7 that are the same to the last bit"],
        ),
        (
            [dataclasses.replace(step(number, 3.0 - number / 16), grad_norm=1.5) for number in range(1, 10)],
            ["step 1: grad norm: recorded 1.5 in 9 steps, found at most 7 that are the same to the last bit"],
        ),
    ],
)
def test_losses_and_norms(steps: list[StepLink], expected: list[str]) -> None:
    assert [one.line() for one in unlikely_figures(steps)] == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (AFTER_3, []),
        (
            dataclasses.replace(AFTER_3, exp_avg=STATE.exp_avg),
            ["step 3: exp_avg: recorded those of the state before, found others: updates were made since"],
        ),
        (
            dataclasses.replace(AFTER_3, exp_avg=AFTER_3.exp_avg_sq),
            ["step 3: exp_avg_sq: recorded that of exp_avg, found one of its own"],
        ),
    ],
)
def test_moments(state: StatePrint, expected: list[str], tmp_path: Path) -> None:
    contents: list[Content] = [*HONEST[:4], CheckpointLink(3, 1003, state), CheckpointLink(3, 1003, state)]
    write(tmp_path / EVIDENCE, contents)
    assert [one.line() for one in moments_still(read_chain(tmp_path / EVIDENCE))] == expected


def test_steps_that_are_skipped_leave_moments(tmp_path: Path) -> None:
    skipped = dataclasses.replace(step(1), skipped=True, grad_norm=math.inf)
    write(tmp_path / EVIDENCE, [BEGIN, skipped, CheckpointLink(1, 1001, STATE)])
    assert [*moments_still(read_chain(tmp_path / EVIDENCE))] == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"sizes": (SIZES[0] - 1,)},
            f"step 0: sizes of the tensors: recorded {SIZES[0] - 1:,} values, found {SIZES[0]:,}",
        ),
        (
            {"names": ("w", "w"), "sizes": (1, SIZES[0] - 1)},
            "step 0: names of the tensors: recorded 2, found 1 different",
        ),
        ({"names": ("w", "v"), "sizes": (-1, SIZES[0] + 1)}, "step 0: sizes of the tensors: recorded"),
    ],
)
def test_tensors_of_another_model(fields: dict[str, object], expected: str, tmp_path: Path) -> None:
    write(tmp_path / EVIDENCE, [dataclasses.replace(BEGIN, **fields), *HONEST[1:]])  # type: ignore[arg-type]
    said = [one.line() for one in chain_deviations(read_chain(tmp_path / EVIDENCE), TINY)]
    assert any(line.startswith(expected) for line in said), said
