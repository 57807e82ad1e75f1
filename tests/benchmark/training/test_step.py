"""One optimizer step and one evaluation, in worlds of one and of two processes."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.config.run_config import RunConfig
from benchmark.config.schedule import learning_rate
from benchmark.training.engine.adam import Adam, local
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.micro_batches import TrainingBatches, read_micro_batch
from benchmark.training.inputs import open_data
from benchmark.training.step import EvaluationResult, StepFlags, StepResult, evaluate, train_step
from model.gpt3 import token_losses
from tests.benchmark.runs import loaded_state, plain_model, system_of
from tests.benchmark.tiny import Inputs, in_processes


@dataclasses.dataclass
class Seen:
    steps: list[StepResult]
    changed: list[bool]
    """Whether each step changed the weights."""
    gradients_left: bool
    evaluation: EvaluationResult
    by_hand: tuple[float, float] | None
    """Sum of the losses that count and their number, where one process has the whole model."""


def _step_and_evaluate(config: RunConfig) -> Seen:
    """An evaluation; then a step, one for which the last process asks to stop, and one with a bad gradient."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        data = open_data(config.data, config.benchmark, 17)
        quality = evaluate(state, data.validation)
        by_hand = _losses_by_hand(config, data.validation) if world.size == 1 else None
        batches = TrainingBatches(data.training, config.benchmark, config.system, rank=world.data_rank)
        steps, changed = [], []
        for number in range(3):
            if number == 2:
                _spoil_the_gradient(state.optimizer)
            before = [local(value.detach()).clone() for value in state.parameters.values()]
            at = state.progress.consumed_samples
            asked = number == 1 and world.rank == world.size - 1
            flags = StepFlags(time_limit=asked, writer_busy=world.rank == 0)
            steps.append(train_step(state, batches.at(at), flags=flags))
            state.progress.steps += 1
            now = [local(value.detach()) for value in state.parameters.values()]
            changed.append(any(not torch.equal(one, two) for one, two in zip(before, now, strict=True)))
        left = any(value.grad is not None for value in state.parameters.values())
        return Seen(steps, changed, left, quality, by_hand)


def _spoil_the_gradient(adam: Adam) -> None:
    """Before its norm is taken, on one process."""
    square_sum = adam.gradient_square_sum

    def spoilt() -> torch.Tensor:
        if torch.distributed.get_rank() == 0:
            adam._gradients()[0].fill_(float("nan"))
        return square_sum()

    setattr(adam, "gradient_square_sum", spoilt)  # noqa: B010


@torch.no_grad()
def _losses_by_hand(config: RunConfig, windows: Any) -> tuple[float, float]:
    model, total, number = plain_model(config), 0.0, 0.0
    for sample in range(len(windows)):
        batch = read_micro_batch(windows, torch.tensor([sample]).numpy(), 100)
        losses = token_losses(model(batch.tokens), batch.labels)
        total += float((losses.double() * batch.loss_mask).sum())
        number += float(batch.loss_mask.sum())
    return total, number


@pytest.fixture(scope="module")
def seen(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """Of a world of one process, then of both processes of a world of two."""
    run_dir: Path = tmp_path_factory.mktemp("step")
    alone = in_processes(1, _step_and_evaluate, inputs.config(run_dir))
    return alone + in_processes(2, _step_and_evaluate, inputs.config(run_dir, system=system_of(2)))


def test_all_processes_log_the_same(seen: list[Seen]) -> None:
    alone, first, second = seen
    assert repr(first.steps) == repr(second.steps)
    assert first.evaluation == second.evaluation
    for one, two in zip(alone.steps[:2], first.steps[:2], strict=True):
        assert two.loss == pytest.approx(one.loss, rel=2e-6)
        assert two.grad_norm == pytest.approx(one.grad_norm, rel=2e-6)
    assert first.evaluation.log_perplexity == pytest.approx(alone.evaluation.log_perplexity, rel=2e-6)


def test_evaluation_weighs_every_scored_token_the_same(seen: list[Seen]) -> None:
    assert seen[0].by_hand is not None
    total, number = seen[0].by_hand
    assert seen[0].evaluation.scored_tokens == seen[1].evaluation.scored_tokens == number
    assert seen[0].evaluation.log_perplexity == pytest.approx(total / number, rel=1e-6)


def test_one_process_that_is_asked_to_stop_is_enough(seen: list[Seen]) -> None:
    for one in seen:
        assert [step.flags.stop_by for step in one.steps] == [None, "time limit", None]
        assert [step.flags.writer_busy for step in one.steps] == [True] * 3


def test_step_with_a_bad_gradient_changes_nothing(seen: list[Seen]) -> None:
    for one in seen:
        assert [step.skipped for step in one.steps] == [False, False, True]
        assert one.changed == [True, True, False]
        assert not one.gradients_left


def test_learning_rate_is_that_of_the_samples_before_the_step(seen: list[Seen], inputs: Inputs) -> None:
    optimizer = inputs.config(Path("run")).benchmark.optimizer
    rates = [learning_rate(48_000 + 12 * number, optimizer) for number in range(3)]
    assert [step.learning_rate for step in seen[0].steps] == rates
