"""One optimizer step and one evaluation, in worlds of one and of two processes, and what is found of bad ones."""

import dataclasses
import math
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmark.config.run_config import RunConfig
from benchmark.config.schedule import learning_rate
from benchmark.training.engine.adam import Adam, local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.micro_batches import TrainingBatches, read_micro_batch
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.unsound_values import (
    BadMicroBatch,
    NonFiniteStep,
    StateSoundness,
    bad_parts,
    check_state,
)
from benchmark.training.inputs import open_data
from benchmark.training.step import NO_FLAGS, EvaluationResult, StepFlags, StepResult, evaluate, train_step
from model.gpt3 import token_losses
from model.passes.end_passes import OutputPass
from tests.benchmark.runs import loaded_state, plain_model, system_of
from tests.benchmark.tiny import Inputs, in_processes

TABLE = "embedding.word_embeddings.weight"
WORLDS = {
    "alone": system_of(1, micro_batch_size=2),
    "two": system_of(2, micro_batch_size=2),
    "pipeline": system_of(2, pipeline_parallel=2, micro_batch_size=2),
}


@dataclasses.dataclass
class Seen:
    steps: list[StepResult]
    changed: list[bool]
    """Whether each step changed the weights."""
    gradients_left: bool
    evaluation: EvaluationResult
    by_hand: tuple[float, float] | None
    """Sum of the losses that count and their number, where one process has the whole model."""
    soundness: list[StateSoundness]
    """As the state is; with a flipped bit of a weight on the last rank; then with moments on rank 0 that are NaN."""


def _step_and_evaluate(config: RunConfig) -> Seen:
    """An evaluation; a step; one for which the last process asks to stop; one with an inf in a gradient that the last
    process holds; one whose loss is not finite in micro-batch 2 of the last process; a good one."""
    with joined_world(config.system, read_environment()) as world:
        state, last = loaded_state(config, world), world.rank == world.size - 1
        data = open_data(config.data, config.benchmark, 17)
        quality = evaluate(state, data.validation)
        by_hand = _losses_by_hand(config, data.validation) if world.size == 1 else None
        batches = TrainingBatches(data.training, config.benchmark, config.system, rank=world.data_rank)
        steps, changed = [], []
        for number in range(5):
            if number == 2 and last:
                _spoil_the_next_gradient()
            if number == 3 and last:
                _spoil_the_next_loss(2)
            old_values = [local(value.detach()).clone() for value in state.parameters.values()]
            flags = StepFlags(time_limit=number == 1 and last, writer_busy=world.rank == 0)
            steps.append(train_step(state, batches.at(state.progress.consumed_samples), flags=flags))
            state.progress.steps += 1
            new_values = [local(value.detach()) for value in state.parameters.values()]
            changed.append(any(not torch.equal(old, new) for old, new in zip(old_values, new_values, strict=True)))
        gradients_left = any(value.grad is not None for value in state.parameters.values())
        soundness = [check_state(state)]
        if last:
            local(state.parameters[TABLE].detach())[0, 0] = -1.7e38
        soundness.append(check_state(state))
        if world.rank == 0:
            local(state.optimizer.moments()["exp_avg"][TABLE])[0, :2] = math.nan
        return Seen(steps, changed, gradients_left, quality, by_hand, [*soundness, check_state(state)])


def _spoil_the_next_gradient() -> None:
    square_sum = Adam.gradient_square_sum

    def spoilt(adam: Adam) -> Tensor:
        setattr(Adam, "gradient_square_sum", square_sum)  # noqa: B010
        adam._gradients()[3].view(-1)[:2] = math.inf
        return square_sum(adam)

    setattr(Adam, "gradient_square_sum", spoilt)  # noqa: B010


def _spoil_the_next_loss(number: int) -> None:
    losses_and_gradient, count = OutputPass.losses_and_gradient, 0

    def spoilt(output: OutputPass, x_tH: Tensor, *arguments: Tensor) -> Any:
        nonlocal count
        count += 1
        return losses_and_gradient(output, x_tH * (math.nan if count == number + 1 else 1.0), *arguments)

    setattr(OutputPass, "losses_and_gradient", spoilt)  # noqa: B010


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
def outcomes(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Seen]]:
    """What each process saw, by world."""
    folder: Path = tmp_path_factory.mktemp("step")
    return {
        name: in_processes(system.num_devices, _step_and_evaluate, inputs.config(folder, system=system))
        for name, system in WORLDS.items()
    }


def test_all_processes_log_the_same(outcomes: dict[str, list[Seen]]) -> None:
    (alone,) = outcomes["alone"]
    for name in ("two", "pipeline"):
        first, second = outcomes[name]
        assert repr(first.steps) == repr(second.steps)
        assert first.evaluation == second.evaluation
        for expected, step in zip(alone.steps[:2], first.steps[:2], strict=True):
            assert step.loss == pytest.approx(expected.loss, rel=2e-6)
            assert step.grad_norm == pytest.approx(expected.grad_norm, rel=2e-6)
        assert first.evaluation.log_perplexity == pytest.approx(alone.evaluation.log_perplexity, rel=2e-6)


def test_evaluation_weighs_every_scored_token_the_same(outcomes: dict[str, list[Seen]]) -> None:
    (alone,) = outcomes["alone"]
    assert alone.by_hand is not None
    total, number = alone.by_hand
    assert alone.evaluation.scored_tokens == outcomes["two"][0].evaluation.scored_tokens == number
    assert alone.evaluation.log_perplexity == pytest.approx(total / number, rel=1e-6)


def test_one_process_that_is_asked_to_stop_is_enough(outcomes: dict[str, list[Seen]]) -> None:
    for outcome in (outcome for ranks in outcomes.values() for outcome in ranks):
        assert [step.flags.stop_by for step in outcome.steps] == [None, "time limit", None, None, None]
        assert all(step.flags.writer_busy for step in outcome.steps)


def test_reasons_to_stop_in_their_order() -> None:
    """A person's wish comes first."""
    everything = StepFlags(exit_trigger=True, sigusr2=True, sigterm=True, time_limit=True)
    assert everything.stop_by == "exit trigger"
    assert StepFlags(sigusr2=True, sigterm=True).stop_by == "signal SIGUSR2"
    assert StepFlags(sigterm=True, time_limit=True).stop_by == "signal SIGTERM"
    assert StepFlags(save=True, writer_busy=True, writer_broken=True).stop_by is NO_FLAGS.stop_by is None


def test_step_with_a_bad_gradient_or_loss_changes_nothing(outcomes: dict[str, list[Seen]]) -> None:
    for outcome in (outcome for ranks in outcomes.values() for outcome in ranks):
        assert [step.skipped for step in outcome.steps] == [False, False, True, True, False]
        assert outcome.changed == [True, True, False, False, True]
        assert not outcome.gradients_left
        assert [step.nonfinite is None for step in outcome.steps] == [True, True, False, False, True]


def test_learning_rate_is_that_of_the_samples_before_the_step(outcomes: dict[str, list[Seen]], inputs: Inputs) -> None:
    optimizer = inputs.config(Path("run")).benchmark.optimizer
    rates = [learning_rate(48_000 + 12 * number, optimizer, 12) for number in range(5)]
    assert [step.learning_rate for step in outcomes["alone"][0].steps] == rates


def _nonfinite(outcome: Seen) -> tuple[NonFiniteStep, NonFiniteStep]:
    gradient, loss = (step.nonfinite for step in outcome.steps[2:4])
    assert gradient is not None and loss is not None
    return gradient, loss


def test_ranks_with_bad_gradients_and_losses_are_named(outcomes: dict[str, list[Seen]]) -> None:
    gradient, loss = _nonfinite(outcomes["two"][0])
    (holder,) = gradient.ranks
    assert (gradient.first_sample, gradient.num_samples, gradient.data_parallel) == (48_024, 12, 2)
    assert (holder.rank, holder.host, holder.data_rank) == (1, socket.gethostname(), 1)
    assert holder.num_parts == 1 and holder.parts[0].infs == 2 and holder.parts[0].nans == 0
    assert gradient.losses_finite
    assert not loss.losses_finite
    assert [rank.num_micro_batches for rank in loss.ranks] == [0, 1]
    assert loss.ranks[1].micro_batches == (BadMicroBatch(2, 48_036 + 2 * 4 + 2, 2),)
    assert all(rank.num_parts > 8 and len(rank.parts) == 8 for rank in loss.ranks)  # the sum has spread it
    _, of_pipeline = _nonfinite(outcomes["pipeline"][0])
    assert [rank.data_rank for rank in of_pipeline.ranks] == [0, 0]
    assert [rank.num_micro_batches for rank in of_pipeline.ranks] == [0, 1]  # the last stage has the losses
    assert of_pipeline.ranks[1].micro_batches == (BadMicroBatch(2, 48_036 + 2 * 2, 2),)


def test_values_that_are_not_finite_are_counted() -> None:
    gradients = {"a": torch.tensor([1.0, math.nan, math.inf, -math.inf]), "b": torch.ones(3), "c": torch.zeros(0)}
    (bad,) = bad_parts(gradients)
    assert (bad.parameter, bad.nans, bad.infs) == ("a", 1, 2)


def test_damage_of_the_state_is_named_on_all_processes(outcomes: dict[str, list[Seen]]) -> None:
    first, second = outcomes["two"]
    assert repr(first.soundness) == repr(second.soundness)
    sound, flipped, nonfinite = first.soundness
    assert sound == StateSoundness(()) and sound.finite
    (weight,) = flipped.tensors
    assert (weight.name, weight.rank, weight.nonfinite) == (f"model/{TABLE}", 1, 0)
    assert 1.6e38 < weight.largest < 1.8e38
    assert flipped.finite
    moment, again = nonfinite.tensors
    assert (moment.name, moment.rank, moment.nonfinite) == (f"exp_avg/{TABLE}", 0, 2)
    assert again == weight
    assert not nonfinite.finite
