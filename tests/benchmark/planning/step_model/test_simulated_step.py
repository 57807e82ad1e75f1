"""Whole steps."""

import dataclasses
import random

import pytest

from benchmark.planning.step_model.simulated_step import simulate_evaluation, simulate_step
from tests.backtest.relations import broken_relations, random_work
from tests.benchmark.planning.step_model.works import GPT3, VALUES, decoder, gpt3_work


def test_nvidias_recipe_comes_out() -> None:
    """GPT-3 175B in BF16 on 512 H100, two samples per device: 8.42 s, 52.8 % (docs/facts/peers.md 1.1)."""
    step = simulate_step(gpt3_work(global_batch_size=1024), VALUES)
    assert step.total == pytest.approx(8.42, rel=0.06)
    assert step.matmul > 0.7 * step.total
    assert min(dataclasses.astuple(step)) >= 0


def test_an_evaluation_is_a_third_of_its_tokens_training_and_a_bubble() -> None:
    work = gpt3_work()
    step = simulate_step(work, VALUES).total
    evaluation = simulate_evaluation(work, VALUES, 2048)
    assert step / 3.3 < evaluation < step / 2.5
    assert simulate_evaluation(work, VALUES, 5660) == pytest.approx(5660 / 2048 * evaluation, rel=0.05)


def test_layers_of_stages() -> None:
    ten = decoder(10, 64, 1, 64, 64)
    ours, nemo = (gpt3_work(stack, pipeline_parallel=4, pipeline_chunks=1) for stack in ("ours", "nemo"))
    assert dataclasses.replace(ours, model=ten).layers_of_stages == [3, 3, 2, 2]
    assert dataclasses.replace(nemo, model=ten).layers_of_stages == [2, 3, 3, 2]
    assert gpt3_work().layers_of_stages == [2] * 48
    assert gpt3_work().parameters_of_device == pytest.approx((12 * GPT3.layer_matrix_weights + 51200 * 12288) / 4)


@pytest.mark.parametrize("seed", range(12))
def test_more_of_a_good_thing_is_never_slower(seed: int) -> None:
    work = random_work(random.Random(seed))
    assert list(broken_relations(work)) == [], work
