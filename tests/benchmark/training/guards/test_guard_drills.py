"""Whole runs with forged spikes, flipped bits and walls of skipped steps, and what becomes of them."""

import dataclasses
import json
import math
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import benchmark.training.step as step_module
import benchmark.training.train as train_module
from benchmark.config.run_config import RunConfig, Submission
from benchmark.config.schedule import learning_rate
from benchmark.launch.next_attempt import decide
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, read_progress, whole_checkpoints
from benchmark.training.engine.adam import Adam, local
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.guards.rollback_file import read_rollbacks
from benchmark.training.train import train
from checksums.md5_list import read_list
from stage.errors import CheckFailed
from tests.benchmark.runs import events, mlperf, system_of
from tests.benchmark.tiny import TINY, Inputs, in_processes

pytestmark = pytest.mark.slow

LONG = dataclasses.replace(TINY, train_samples=4060 * 12, eval_interval_samples=30 * 12)
SPIKE = 45
"""Number of the step, from 1, whose figures are forged; the newest checkpoint is of 40 steps."""
START = LONG.start_samples


def configured(inputs: Inputs, run_dir: Path, policy: str, **fields: Any) -> RunConfig:
    division = Submission(submission_division="open")
    return inputs.config(run_dir, LONG, save_interval=20, on_spike=policy, submission=division, **fields)


def _train_with_spikes(config: RunConfig, at_samples: Sequence[int] | None) -> str:
    """Forge loss and norm of the steps that begin at these samples; None: of every step number SPIKE."""
    step = step_module.train_step

    def forged(state: Any, *arguments: Any, **keywords: Any) -> Any:
        progress = state.progress
        result = step(state, *arguments, **keywords)
        if progress.steps == SPIKE - 1 if at_samples is None else progress.consumed_samples in at_samples:
            result = dataclasses.replace(result, loss=9.0, grad_norm=100.0)
        return result

    setattr(train_module, "train_step", forged)  # noqa: B010
    return train(config)


def _train_without_window(config: RunConfig, first: int, width: int) -> str:
    """On data that lacks ``width`` samples from number ``first`` on."""
    at = TrainingBatches.at

    def shifted(batches: TrainingBatches, consumed: int) -> Any:
        return at(batches, consumed if consumed < first else consumed + width)

    setattr(TrainingBatches, "at", shifted)  # noqa: B010
    return train(config)


def run_until_end(config: RunConfig, at_samples: Sequence[int] | None) -> list[str]:
    """Statuses of the starts."""
    statuses: list[str] = []
    while not statuses or statuses[-1] == "rolled back":
        assert len(statuses) < 4
        statuses += in_processes(1, _train_with_spikes, config, at_samples)
    return statuses


def last_figures(run_dir: Path) -> dict[int, tuple[float, float, float]]:
    """Loss, norm and learning rate by iteration, as they were at last."""
    return {one["iteration"]: (one["loss"], one["grad_norm"], one["learning_rate"]) for one in events(run_dir, "step")}


def shards(run_dir: Path, steps: int) -> dict[str, str]:
    """Digests of weights and moments."""
    digests = read_list(checkpoint_path(run_dir, steps) / "digests.md5")
    return {name: md5 for name, md5 in digests.items() if name.endswith(".distcp")}


def test_run_that_skips_data_is_one_whose_data_lacks_the_window(inputs: Inputs, tmp_path: Path) -> None:
    first, end = START + 40 * 12, START + SPIKE * 12
    config = configured(inputs, tmp_path / "run", "skip-data")
    assert run_until_end(config, [end - 12]) == ["rolled back", "completed"]
    reference = configured(inputs, tmp_path / "reference", "note")
    assert in_processes(1, _train_without_window, reference, first, end - first) == ["completed"]
    got, expected = last_figures(tmp_path / "run"), last_figures(tmp_path / "reference")
    last = 4055  # the data ends five steps earlier
    assert max(got) == last
    assert [got[step] for step in range(4001, last + 1)] == [expected[step] for step in range(4001, last + 1)]
    assert shards(tmp_path / "run", 40) == shards(tmp_path / "reference", 40)
    (rollback,) = read_rollbacks(tmp_path / "run")
    assert (rollback.to_steps, rollback.first_sample, rollback.end_sample) == (40, first, end)
    assert read_progress(checkpoint_path(tmp_path / "run", 40)).rollbacks == []
    losses = [one["consumed_samples"] for one in events(tmp_path / "run", "step") if one["iteration"] == 4041]
    assert losses == [first + 12, end + 12]
    evaluations = events(tmp_path / "run", "evaluation")
    assert [one["trained_tokens"] // 192 for one in evaluations] == [30, 55]


def test_rollback_is_in_the_log_once_and_the_policy_too(inputs: Inputs, tmp_path: Path) -> None:
    config = configured(inputs, tmp_path / "run", "skip-data")
    assert run_until_end(config, [START + 44 * 12]) == ["rolled back", "completed"]
    log = mlperf(tmp_path / "run")
    keys = [event["key"] for event in log]
    assert [keys.count(key) for key in ("run_start", "run_stop", "on_spike", "restart", "rollback")] == [1] * 5
    (rollback,) = [event for event in log if event["key"] == "rollback"]
    assert rollback["value"]["to_steps"] == 40
    assert rollback["metadata"]["step"] == 40 * 192
    assert [event["value"] for event in log if event["key"] == "on_spike"] == ["skip-data"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["trained_samples"], summary["trained_tokens"]) == (55 * 12, 55 * 192)


def test_lowered_rate_is_that_of_the_right_steps(inputs: Inputs, tmp_path: Path) -> None:
    config = configured(inputs, tmp_path / "run", "lower-rate", spike_rate_factor=0.25, spike_rate_steps=7)
    bad = START + 44 * 12
    done = in_processes(1, _train_with_spikes, config, [bad])
    assert decide(config.run_dir, 75, saved_steps=40).action == "again"
    done += in_processes(1, _train_with_spikes, config, [])
    assert done == ["rolled back", "completed"]
    rates = {step: figures[2] for step, figures in last_figures(tmp_path / "run").items()}
    assert sorted(rates) == list(range(4001, 4061))
    for step, rate in rates.items():
        factor = 0.25 if 4041 <= step < 4048 else 1.0
        assert rate == learning_rate((step - 1) * 12, LONG.optimizer) * factor
    assert whole_checkpoints(tmp_path / "run") == [40, 60]
    assert len(read_progress(checkpoint_path(tmp_path / "run", 60)).rollbacks) == 1


def test_spike_that_comes_again_stops_the_run(inputs: Inputs, tmp_path: Path) -> None:
    config = configured(inputs, tmp_path / "run", "lower-rate", spike_rate_steps=50)
    assert run_until_end(config, None) == ["rolled back", "rolled back", "spike"]
    rates = last_figures(tmp_path / "run")
    assert rates[SPIKE + 4000][2] == learning_rate(START + (SPIKE - 1) * 12, LONG.optimizer) * 0.25
    assert any("and it came again" in event["value"] for event in events(tmp_path / "run", "message"))
    assert whole_checkpoints(tmp_path / "run") == [40, 45]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "spike"


def test_without_a_checkpoint_it_goes_back_to_the_initial_one(inputs: Inputs, tmp_path: Path) -> None:
    config = dataclasses.replace(configured(inputs, tmp_path / "run", "skip-data"), save_interval=0)
    assert run_until_end(config, [START + 44 * 12]) == ["rolled back", "completed"]
    steps = events(tmp_path / "run", "step")
    assert [one["consumed_samples"] for one in steps if one["iteration"] == 4001] == [START + 12, START + 46 * 12]
    assert len([one for one in steps if one["consumed_samples"] == START + 12]) == 1
    keys = [event["key"] for event in mlperf(tmp_path / "run")]
    assert [keys.count(key) for key in ("run_start", "run_stop", "rollback")] == [1, 1, 1]


def test_stopped_run_is_saved_as_it_is(inputs: Inputs, tmp_path: Path) -> None:
    config = dataclasses.replace(configured(inputs, tmp_path / "run", "stop"), submission=Submission())
    assert in_processes(1, _train_with_spikes, config, None) == ["spike"]
    progress = read_progress(checkpoint_path(tmp_path / "run", SPIKE))
    assert (progress.watch.began, progress.steps) == (SPIKE, SPIKE)
    assert len(progress.watch.loss.surprises) == SPIKE - 1 - 8  # the spike's is not learned
    (stop,) = [event["metadata"]["status"] for event in mlperf(tmp_path / "run") if event["key"] == "run_stop"]
    assert stop == "aborted"


def test_resumed_run_knows_what_an_undisturbed_one_knows(inputs: Inputs, tmp_path: Path) -> None:
    """What the detector knows after 60 steps is the same to the bit when the run was started again at 40."""
    config = configured(inputs, tmp_path / "run", "note")
    assert in_processes(1, train, config) == ["completed"]
    whole = read_progress(checkpoint_path(tmp_path / "run", 60))
    checkpoint_path(tmp_path / "run", 60).rename(tmp_path / "kept")
    (tmp_path / "run" / "summary.json").unlink()
    assert in_processes(1, train, config) == ["completed"]
    again = read_progress(checkpoint_path(tmp_path / "run", 60))
    assert again.watch == whole.watch
    assert again.restarts == 1 and len(again.watch.loss.surprises) == 52


def _train_with_flipped_bits(config: RunConfig, before_step: int, name: str, mask: int, bits: int) -> str:
    """Change a weight on rank 1, to (weight & mask) ^ bits, before the step of that number; how the run failed."""
    step = step_module.train_step

    def flipped(state: Any, *arguments: Any, **keywords: Any) -> Any:
        if state.progress.steps == before_step - 1 and os.environ["RANK"] == "1":
            weight = local(state.parameters[name].detach()).view(torch.int32).flatten()
            weight[3] = (weight[3] & mask) ^ bits
        return step(state, *arguments, **keywords)

    setattr(train_module, "train_step", flipped)  # noqa: B010
    try:
        return train(config)
    except CheckFailed as error:  # told once every process has left, so that none is killed before its log is written
        return str(error)


def test_flipped_bits_in_a_weight_are_found_at_the_step_they_spoil(inputs: Inputs, tmp_path: Path) -> None:
    """The audit is due every 100 steps; the spike makes it come at once."""
    config = configured(inputs, tmp_path / "run", "note", system=system_of(2, replicas=2))
    name, three_hundred = "encoder.final_layernorm.weight", 0x43960000
    for failure in in_processes(2, _train_with_flipped_bits, config, SPIKE, name, 0, three_hundred):
        assert failure.startswith("copies differ between devices")
    said = [event["value"] for event in events(tmp_path / "run", "message")]
    assert any("as a flipped bit in a weight makes them: an audit compares all copies now" in line for line in said)
    assert any("ranks 1 differ from rank 0" in line for line in said)
    assert [event["steps"] for event in events(tmp_path / "run", "audit") if event["differences"]] == [SPIKE]
    assert whole_checkpoints(tmp_path / "run") == [20, 40]


def test_flipped_bit_that_makes_steps_skip_is_named_at_the_first(inputs: Inputs, tmp_path: Path) -> None:
    """The highest bit of the exponent, in a part that no other device has."""
    config = configured(inputs, tmp_path / "run", "note", system=system_of(2))
    name = "embedding.word_embeddings.weight"
    for failure in in_processes(2, _train_with_flipped_bits, config, 25, name, -1, 1 << 30):
        assert re.match("weights or moments are damaged.*nothing of it was saved", failure)
    (diagnosis,) = [event["value"] for event in events(tmp_path / "run", "diagnosis")]
    assert f"model/{name} on rank 1" in diagnosis and "as a flipped bit makes" in diagnosis
    assert diagnosis.startswith("a step without finite gradients, from step 4025 on: giving up")
    assert "it is the state, not the data, that every step breaks on" in diagnosis
    assert whole_checkpoints(tmp_path / "run") == [20]


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
    return train(config)


def test_wall_of_skipped_steps_is_explained_and_saved(inputs: Inputs, tmp_path: Path) -> None:
    config = dataclasses.replace(configured(inputs, tmp_path / "run", "note", system=system_of(2)), log_interval=1)
    assert in_processes(2, _train_into_a_wall, config) == ["diverged"] * 2
    host = socket.gethostname()
    _, first, last = [event["value"] for event in events(tmp_path / "run", "message")][:3]
    assert f"held by rank 1 ({host})" in first and "--documents --output samples.npy" in first
    assert last.startswith("10 steps in a row without finite gradients, from step 4005 on: giving up; weights and")
    assert f"each time rank 1 ({host}) alone held a part that was not finite, of the same parameters" in last
    assert len(events(tmp_path / "run", "nonfinite")) == 10
    assert whole_checkpoints(tmp_path / "run") == [14]
