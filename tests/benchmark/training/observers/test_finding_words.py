"""Skipped steps and damaged weights in plain words."""

from pathlib import Path

import pytest

from benchmark.training.engine.unsound_values import StateSoundness, UnsoundTensor
from benchmark.training.observers.finding_words import (
    describe_state,
    describe_step,
    samples_command,
    suspected_samples,
)
from tests.benchmark.tiny import Inputs
from tests.benchmark.training.observers.findings import on_rank, skipped


def test_finite_losses_leave_open_whose_gradient_it_was() -> None:
    assert describe_step(skipped(on_rank(1))) == (
        "NaN in layers.0.qkv.weight (1 of 53 parameters) held by rank 1 (n1); the loss of every micro-batch was "
        "finite, and a sum over 4 data-parallel ranks does not tell whose gradient it was"
    )
    alone = describe_step(skipped(on_rank(0, nans=0), data_parallel=1))
    assert alone == (
        "inf in layers.0.qkv.weight (1 of 53 parameters) held by rank 0 (n0); the loss of every micro-batch was finite"
    )


def test_loss_that_is_not_finite_names_rank_and_samples() -> None:
    step = skipped(on_rank(0), on_rank(2, micro_batches=(1, 3)))
    assert describe_step(step) == (
        "NaN in layers.0.qkv.weight (1 of 53 parameters) held by ranks 0 (n0), 2 (n2); the loss was not finite in "
        "micro-batch 1 of rank 2 (n2), samples 1014 to 1015, micro-batch 3 of rank 2 (n2), samples 1034 to 1035"
    )
    assert suspected_samples(step) == (1014, 22)
    assert suspected_samples(skipped(on_rank(1))) == (1000, 40)


def test_long_lists_are_cut() -> None:
    names = tuple(f"layers.{number}.qkv.weight" for number in range(8))
    text = describe_step(skipped(*[on_rank(rank, names) for rank in range(5)]))
    assert "layers.0.qkv.weight, layers.1.qkv.weight, layers.2.qkv.weight and 5 more (8 of 53 parameters)" in text
    assert "held by ranks 0 (n0), 1 (n1), 2 (n2) and 2 more" in text


def test_sum_that_nobody_holds_points_at_a_link() -> None:
    assert "Suspect a link or a device" in describe_step(skipped())


def test_command_that_prints_the_samples(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run")
    words = samples_command(config.data.train_data_path, config.benchmark, 17, 48_012, 12).split()
    assert words[:4] == ["python", "-m", "data_prep", "samples"]
    for option, value in (("--first", 48_012), ("--count", 12), ("--seed", 17), ("--num-samples", 48_144)):
        assert words[words.index(option) + 1] == str(value)
    assert words[words.index("--data-path") + 1 :][:4] == list(config.data.train_data_path)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (UnsoundTensor("exp_avg_sq/x", 3, "n3", 12, 0.5), "exp_avg_sq/x on rank 3 (n3): 12 values not finite"),
        (UnsoundTensor("model/x", 3, "n3", 0, 1.7e38), "a value of 1.7e+38, as a flipped bit makes"),
    ],
)
def test_damaged_state_is_named(tensor: UnsoundTensor, words: str) -> None:
    assert words in describe_state(StateSoundness((tensor,)))
