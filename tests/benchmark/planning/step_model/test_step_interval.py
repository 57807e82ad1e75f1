"""The doubt of a prediction."""

import dataclasses

import pytest

from benchmark.planning.step_model.machine_constants import committed_constants
from benchmark.planning.step_model.step_interval import predict_step
from tests.benchmark.planning.step_model.works import gpt3_work


def test_published_stacks_have_the_backtests_error_alone() -> None:
    constants = committed_constants()
    step = predict_step(gpt3_work(), constants)
    assert step.influences == ()
    assert step.high_s / step.step_s - 1 == pytest.approx(constants["stacks.nemo.error"].value)


def test_what_is_not_measured_widens_it() -> None:
    constants = committed_constants()
    step = predict_step(gpt3_work("ours"), constants)
    assert step.low_s < step.step_s < step.high_s
    assert step.high_s / step.step_s - 1 > constants["stacks.ours.error"].value
    moved = [influence.constant for influence in step.influences]
    assert "stacks.ours.losses" in moved
    assert not any(name.startswith("accelerators") for name in moved)
    assert any(
        influence.constant.startswith("accelerators.B200")
        for influence in predict_step(gpt3_work("ours", accelerator="B200"), constants).influences
    )
    certain = {name: dataclasses.replace(each, backed=True) for name, each in constants.items()}
    left = predict_step(gpt3_work("ours"), certain).influences
    assert [influence.constant for influence in left] == ["p2p-overlap=off"]
