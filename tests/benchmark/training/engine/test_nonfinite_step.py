"""Steps whose gradient or loss is not finite on one of two processes: what is found of it."""

import math
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.adam import Adam
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.unsound_values import BadMicroBatch, NonFiniteStep, bad_parts
from benchmark.training.inputs import open_data
from benchmark.training.step import StepResult, train_step
from model.passes.end_passes import OutputPass
from tests.benchmark.runs import loaded_state, system_of
from tests.benchmark.tiny import Inputs, in_processes


def _steps(config: RunConfig) -> list[StepResult]:
    """A good step; one with an inf in a gradient that rank 1 holds; one whose loss is not finite in micro-batch 2 of
    rank 1, on which the others' gradients depend; a good one."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        windows = open_data(config.data, config.benchmark, 17).training
        batches = TrainingBatches(windows, config.benchmark, config.system, rank=world.data_rank)
        results = []
        for number in range(4):
            if number == 1 and world.rank == 1:
                _spoil_the_next_gradient()
            if number == 2 and world.rank == 1:
                _spoil_the_next_loss(2)
            at = state.progress.consumed_samples
            results.append(train_step(state, batches.at(at)))
            state.progress.steps += 1
        return results


def _spoil_the_next_gradient() -> None:
    square_sum = Adam.gradient_square_sum

    def spoilt(adam: Adam) -> torch.Tensor:
        setattr(Adam, "gradient_square_sum", square_sum)  # noqa: B010
        adam._gradients()[3].view(-1)[:2] = math.inf
        return square_sum(adam)

    setattr(Adam, "gradient_square_sum", spoilt)  # noqa: B010


def _spoil_the_next_loss(number: int) -> None:
    losses_and_gradient, count = OutputPass.losses_and_gradient, 0

    def spoilt(output: OutputPass, x_tH: Tensor, *rest: Tensor) -> Any:
        nonlocal count
        count += 1
        return losses_and_gradient(output, x_tH * (math.nan if count == number + 1 else 1.0), *rest)

    setattr(OutputPass, "losses_and_gradient", spoilt)  # noqa: B010


def found(inputs: Inputs, run_dir: Path, **system: Any) -> tuple[NonFiniteStep, NonFiniteStep]:
    everywhere = in_processes(2, _steps, inputs.config(run_dir, system=system_of(2, **system)))
    assert repr(everywhere[0]) == repr(everywhere[1])
    first, second, third, last = everywhere[0]
    assert [one.skipped for one in (first, second, third, last)] == [False, True, True, False]
    assert first.nonfinite is None and last.nonfinite is None
    return second.nonfinite, third.nonfinite


def test_data_parallel_ranks(inputs: Inputs, tmp_path: Path) -> None:
    gradient, loss = found(inputs, tmp_path / "run")
    (holder,) = gradient.ranks
    assert (gradient.first_sample, gradient.num_samples, gradient.data_parallel) == (48_012, 12, 2)
    assert (holder.rank, holder.host, holder.data_rank) == (1, socket.gethostname(), 1)
    assert holder.num_parts == 1 and holder.parts[0].infs == 2 and holder.parts[0].nans == 0
    assert gradient.losses_finite
    assert not loss.losses_finite
    assert [one.num_micro_batches for one in loss.ranks] == [0, 1]
    assert loss.ranks[1].micro_batches == (BadMicroBatch(2, 48_024 + 2 * 4 + 2, 2),)
    assert all(one.num_parts > 8 and len(one.parts) == 8 for one in loss.ranks)  # the sum has spread it


@pytest.mark.slow
def test_pipeline_ranks(inputs: Inputs, tmp_path: Path) -> None:
    _, loss = found(inputs, tmp_path / "run", pipeline_parallel=2)
    assert [one.data_rank for one in loss.ranks] == [0, 0]
    assert [one.num_micro_batches for one in loss.ranks] == [0, 1]  # the last stage has the losses
    assert loss.ranks[1].micro_batches == (BadMicroBatch(2, 48_024 + 2 * 2, 2),)


def test_values_are_counted() -> None:
    gradients = {"a": torch.tensor([1.0, math.nan, math.inf, -math.inf]), "b": torch.ones(3), "c": torch.zeros(0)}
    (bad,) = bad_parts(gradients)
    assert (bad.parameter, bad.nans, bad.infs) == ("a", 1, 2)
