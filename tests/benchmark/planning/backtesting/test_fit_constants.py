"""Fitting: what is chosen for it, and that constants that made steps are found again."""

import dataclasses

import numpy as np
import pytest

from benchmark.planning.backtesting.fit_constants import (
    DERIVED,
    FITTED,
    ONE_IN,
    comparable,
    fit,
    log_errors,
    topology_guessed,
    used_for_fitting,
)
from benchmark.planning.backtesting.published_table import load_published_results
from benchmark.planning.step_model.machine_constants import committed_constants, values_of
from benchmark.planning.step_model.simulated_step import simulate_step

COMPARED = comparable(load_published_results())


def test_one_in_five_are_used_and_none_that_is_guessed_or_unseen() -> None:
    used = used_for_fitting(COMPARED)
    unseen = [each for each in COMPARED if each.result.unseen]
    stated = [each for each in COMPARED if not topology_guessed(each.result) and not each.result.unseen]
    assert len(unseen) > 50 and not any(each.result.unseen for each in used)
    assert len(used) == -(-len(stated) // ONE_IN)
    assert not any(topology_guessed(each.result) for each in used)
    assert used[1] is stated[ONE_IN]
    assert len(FITTED) < len(used) / 2


@pytest.mark.slow
def test_constants_that_made_the_steps_are_found_again() -> None:
    constants = committed_constants()
    made = {**values_of(constants), "accelerators.A100-80GB.matmul_bf16": 240.0, "stacks.megatron_2021.losses": 0.1}
    steps = []
    for each in [each for each in COMPARED if each.result.source.name == "megatron-a100"][:4]:
        step_s = simulate_step(each.work, made).total
        result = dataclasses.replace(each.result, kind="step_s", value=step_s)
        steps.append(dataclasses.replace(each, result=result))
    start = np.abs(log_errors(steps, values_of(constants))).max()
    found = fit(steps, constants, rounds=3)
    assert np.abs(log_errors(steps, found)).max() < start / 2
    for name in FITTED:
        assert constants[name].low <= found[name] <= constants[name].high
    untouched = set(constants) - set(FITTED) - set(DERIVED)
    assert all(found[name] == constants[name].value for name in untouched)
