"""Whole runs with forged spikes, flipped bits and walls of skipped steps, and what becomes of them."""

import dataclasses
import math
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

import benchmark.training.loop as loop_module
import benchmark.training.step as step_module
from benchmark.config.run_config import RunConfig
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.training.engine.adam import Adam, local
from benchmark.training.train import train
from foundation.errors import CheckFailed
from tests.benchmark.runs import events, mlperf, system_of
from tests.benchmark.tiny import TINY, Inputs, in_processes
from tests.support import changed

pytestmark = pytest.mark.slow

LONG = dataclasses.replace(TINY, train_samples=4060 * 12, eval_interval_samples=30 * 12)
SPIKE = 36
"""Number of the step, from 1, whose figures are forged; the newest checkpoint is of 32 steps."""


def configured(inputs: Inputs, run_dir: Path, **fields: Any) -> RunConfig:
    return inputs.config(run_dir, LONG, save_interval=16, **fields)


def _train_with_flipped_bits(config: RunConfig, before_step: int, name: str, mask: int, bits: int) -> str:
    """Change a weight on rank 1, to (weight & mask) ^ bits, before the step of that number; how the run failed."""
    step = step_module.train_step

    def flipped(state: Any, *arguments: Any, **keywords: Any) -> Any:
        if state.progress.steps == before_step - 1 and os.environ["RANK"] == "1":
            weight = local(state.parameters[name].detach()).view(torch.int32).flatten()
            weight[3] = (weight[3] & mask) ^ bits
        return step(state, *arguments, **keywords)

    setattr(loop_module, "train_step", flipped)  # noqa: B010
    return _failure(config)


def _failure(config: RunConfig) -> str:
    """What the run fails with, told once every process has left, so that none is killed before its log is written."""
    try:
        return train(config)
    except CheckFailed as error:
        return str(error)


def test_flipped_bits_in_a_weight_are_found_at_the_step_they_spoil(inputs: Inputs, tmp_path: Path) -> None:
    """The audit is due every 100 steps; the spike makes it come at once."""
    config = configured(inputs, tmp_path / "run", system=system_of(2, replicas=2))
    name, three_hundred = "encoder.final_layernorm.weight", 0x43960000
    for failure in in_processes(2, _train_with_flipped_bits, config, SPIKE, name, 0, three_hundred):
        assert failure.startswith("copies differ between devices")
    said = [event["value"] for event in events(tmp_path / "run", "message")]
    assert any(line.startswith("spike at step 36") for line in said)
    assert any("ranks 1 differ from rank 0" in line for line in said)
    assert [event["steps"] for event in events(tmp_path / "run", "audit") if event["differences"]] == [SPIKE]
    assert whole_checkpoints(tmp_path / "run") == [16, 32]


def test_flipped_bit_that_makes_steps_skip_is_named_at_the_first(inputs: Inputs, tmp_path: Path) -> None:
    """The highest bit of the exponent, in a part that no other device has."""
    config = configured(inputs, tmp_path / "run", system=system_of(2))
    name = "embedding.word_embeddings.weight"
    for failure in in_processes(2, _train_with_flipped_bits, config, 18, name, -1, 1 << 30):
        assert re.search("weights or moments are damaged.*this state was not saved", failure)
    (diagnosis,) = [event["value"] for event in events(tmp_path / "run", "diagnosis")]
    assert f"model/{name} on rank 1" in diagnosis and "as a flipped bit makes" in diagnosis
    assert diagnosis.startswith("a step without finite gradients, from step 18 on: weights or moments are damaged")
    assert whole_checkpoints(tmp_path / "run") == [16]


def _train_into_a_wall(config: RunConfig) -> str:
    """From the fifth step on, rank 1 holds a NaN in the same parameter."""
    square_sum, count = Adam.gradient_square_sum, 0

    def damaged(adam: Adam) -> Any:
        nonlocal count
        count += 1
        if count >= 5 and os.environ["RANK"] == "1":
            adam._gradients()[2].view(-1)[0] = math.nan
        return square_sum(adam)

    setattr(Adam, "gradient_square_sum", damaged)  # noqa: B010
    return _failure(config)


def test_wall_of_skipped_steps_is_explained_and_ends_the_run(inputs: Inputs, tmp_path: Path) -> None:
    config = changed(configured(inputs, tmp_path / "run", system=system_of(2)), log_interval=1)
    host = socket.gethostname()
    for failure in in_processes(2, _train_into_a_wall, config):
        assert failure.startswith("10 steps in a row without finite gradients, from step 5 on: weights and")
        assert f"held by rank 1 ({host})" in failure
    said = [event["value"] for event in events(tmp_path / "run", "message")]
    first, last = (line for line in said if line.startswith(("step 5 skipped", "10 steps in a row")))
    assert f"held by rank 1 ({host})" in first and "--documents --output samples.npy" in first
    assert last.startswith("10 steps in a row")
    assert len(events(tmp_path / "run", "nonfinite")) == 10
    assert [one["metadata"]["status"] for one in mlperf(tmp_path / "run") if one["key"] == "run_stop"] == ["aborted"]
    assert whole_checkpoints(tmp_path / "run") == []
