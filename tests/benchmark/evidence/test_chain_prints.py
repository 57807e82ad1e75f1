"""Fingerprints that no honest run leaves."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.evidence.chain_checks import chain_deviations
from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.evidence.chain_prints import LEAST_BATCH, batches_again, unreadable_prints
from benchmark.evidence.link_contents import CheckpointLink, Content, EvaluationLink, StepLink
from tests.benchmark.evidence.test_chain_checks import HONEST, due, prints
from tests.benchmark.evidence.test_chain_links import STATE, write
from tests.benchmark.tiny import TINY

Change = Callable[[StepLink], StepLink]
THIRD = 3


def changed(**fields: object) -> list[Content]:
    """HONEST with another third step."""
    link = HONEST[THIRD]
    assert isinstance(link, StepLink)
    return [*HONEST[:THIRD], dataclasses.replace(link, **fields), *HONEST[THIRD + 1 :]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (changed(weights=prints(1)), "step 3: weights: recorded as before the step, found an update moves them"),
        (
            changed(skipped=True, grad_norm=math.nan),
            "step 3: weights: recorded others than before the step, found a step that is skipped leaves them",
        ),
        (changed(grad_norm=math.nan), "step 3: the update: recorded not skipped with a norm of nan, found a step is"),
        (changed(skipped=True), "step 3: the update: recorded skipped with a norm of 1.0, found a step is skipped"),
        (changed(tokens=f"{1:016x}"), "step 3: fingerprint of the tokens: recorded 0000000000000001, found that of st"),
        (changed(samples=f"{2:016x}"), "step 3: fingerprint of the samples: recorded 0000000000000002, found that of "),
        (changed(weights="AAAA"), "step 3: fingerprints on line 4: recorded weights, found weights: 3 bytes; expected"),
        (changed(projections="?"), "step 3: fingerprints on line 4: recorded projections, found projections: 0 bytes"),
        (
            [*HONEST[:4], CheckpointLink(3, 1003, dataclasses.replace(STATE, weights=prints(3), exp_avg=""))],
            "step 3: fingerprints on line 5: recorded exp_avg, found exp_avg: 0 bytes; expected 1 values of 8 bytes",
        ),
        (
            [*HONEST[:-1], EvaluationLink(4, 1004, 2.74, 50)],
            "step 4: scored tokens: recorded 50, found 100 after 4 steps",
        ),
    ],
)
def test_what_nobody_trained(contents: list[Content], expected: str, tmp_path: Path) -> None:
    write(tmp_path / EVIDENCE, contents)
    said = [one.line() for one in chain_deviations(read_chain(tmp_path / EVIDENCE), TINY)]
    assert any(line.startswith(expected) for line in said), said


def test_a_rate_of_zero_moves_nothing(tmp_path: Path) -> None:
    still = dataclasses.replace(due(1), learning_rate=0.0, weights=STATE.weights)
    write(tmp_path / EVIDENCE, [HONEST[0], still])
    said = [one.what for one in chain_deviations(read_chain(tmp_path / EVIDENCE), TINY)]
    assert said == ["learning rate"]


def test_small_batches_may_be_alike(tmp_path: Path) -> None:
    write(tmp_path / EVIDENCE, changed(tokens=f"{1:016x}"))
    chain = read_chain(tmp_path / EVIDENCE)
    assert len([*batches_again(chain, LEAST_BATCH)]) == 1
    assert [*batches_again(chain, LEAST_BATCH - 1)] == []


def test_a_chain_without_a_beginning_names_no_tensors(tmp_path: Path) -> None:
    (tmp_path / EVIDENCE).write_bytes(b"")
    assert [*unreadable_prints(read_chain(tmp_path / EVIDENCE))] == []
