"""Which samples a process reads, and the batches made of them."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark.training.engine.micro_batches import (
    TrainingBatches,
    evaluation_sample_ids,
    micro_batch,
    read_micro_batch,
    training_sample_ids,
)
from benchmark.training.inputs import open_data
from data_prep.sample_order.token_windows import open_token_windows
from foundation.errors import InputError
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import SHORT, Inputs
from tests.support import SHARED_GOLDEN, needs_shared, write_dataset


def test_a_step_is_dealt_out_micro_batch_by_micro_batch() -> None:
    parts = [
        training_sample_ids(100, micro_batch_size=2, num_microbatches=3, rank=rank, world_size=2) for rank in range(2)
    ]
    assert parts[0].tolist() == [[100, 101], [104, 105], [108, 109]]
    assert parts[1].tolist() == [[102, 103], [106, 107], [110, 111]]


def test_evaluation_is_padded_so_that_all_ranks_have_as_many() -> None:
    ids = [evaluation_sample_ids(5, micro_batch_size=1, rank=rank, world_size=2) for rank in range(2)]
    assert [part.tolist() for part in ids] == [[[0], [2], [4]], [[1], [3], [-1]]]
    gathered = evaluation_sample_ids(8, micro_batch_size=2, rank=0, world_size=2)
    assert gathered.tolist() == [[0, 1], [4, 5]]


@needs_shared
def test_recorded_samplers_are_reproduced() -> None:
    recorded = np.load(SHARED_GOLDEN / "data" / "samplers.npz")
    assert len(recorded.files) > 20
    for name in recorded.files:
        expected = recorded[name]
        numbers = {key: int(value) for key, value in re.findall(r"([a-z]+)(\d+)", name)}
        ranks, micro_batches, size = expected.shape
        for rank in range(ranks):
            if name.startswith("evalpad"):
                results = evaluation_sample_ids(numbers["total"], micro_batch_size=size, rank=rank, world_size=ranks)
                np.testing.assert_array_equal(results, expected[rank][: len(results)], err_msg=name)
                assert (expected[rank][len(results) :] < 0).all(), name  # the reference pads to whole global batches
            else:
                results = training_sample_ids(
                    numbers["consumed"],
                    micro_batch_size=size,
                    num_microbatches=micro_batches,
                    rank=rank,
                    world_size=ranks,
                )
                np.testing.assert_array_equal(results, expected[rank], err_msg=f"{name} rank {rank}")


def test_last_position_and_missing_tokens_are_not_scored() -> None:
    batch = micro_batch(np.array([[5, 6, 7, 8], [5, 6, -1, -1], [1, 2, 3, 4]]), np.array([False, False, True]))
    assert batch.tokens.tolist() == [[5, 6, 7, 8], [5, 6, 0, 0], [1, 2, 3, 4]]
    assert batch.labels.tolist()[:2] == [[6, 7, 8, 0], [6, 0, 0, 0]]
    assert batch.loss_mask.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


def test_padding_may_outnumber_the_samples(tmp_path: Path) -> None:
    """The reference fails with an index error, and can count padding of a blend (docs/facts/reference.md c.4, j.17)."""
    write_dataset(tmp_path / "x", [10])
    windows = open_token_windows(["1.0", str(tmp_path / "x")], sequence_length=4, num_samples=-1, seed=1)
    ids = evaluation_sample_ids(len(windows), micro_batch_size=16, rank=0, world_size=1)
    batch = read_micro_batch(windows, ids[0], 51200)
    assert batch.loss_mask.sum(dim=1).tolist()[3:] == [0] * 13
    assert batch.loss_mask.sum() == 3 + 3 + 1


def test_tokens_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    tokens = write_dataset(tmp_path / "x", [15, 25], vocab_size=200)
    windows = open_token_windows([str(tmp_path / "x")], sequence_length=40, num_samples=1, seed=1)
    position = int((tokens >= 150).argmax())
    complaint = f"x: document {int(position >= 15)} holds token {tokens[position]}, but the model's vocabulary has 150"
    with pytest.raises(InputError, match=complaint):
        read_micro_batch(windows, np.array([0]), 150)


@pytest.mark.slow
def test_batches_of_each_step_are_read_ahead_and_after_a_jump(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path, SHORT, system=system_of(2, micro_batch_size=2))
    windows = open_data(config.data, config.benchmark, 17).training
    batches = TrainingBatches(windows, config.benchmark, config.system, rank=1)
    for consumed in (48_000, 48_012, 48_060, 48_012):  # the last step, then back again
        results = batches.at(consumed)
        ids = training_sample_ids(consumed, micro_batch_size=2, num_microbatches=3, rank=1, world_size=2)
        assert len(results) == 3
        for batch, row in zip(results, ids, strict=True):
            expected = read_micro_batch(windows, row, 100)
            assert torch.equal(batch.tokens, expected.tokens)
            assert torch.equal(batch.loss_mask, expected.loss_mask)


def test_of_windows_with_one_token_more_the_last_position_has_a_label() -> None:
    batch = micro_batch(np.array([[5, 6, 7, 8], [5, 6, -1, -1]]), np.array([False, False]), labels_last=True)
    assert batch.tokens.tolist() == [[5, 6, 7], [5, 6, 0]]
    assert batch.labels.tolist() == [[6, 7, 8], [6, 0, 0]]
    assert batch.loss_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
