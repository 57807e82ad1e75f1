"""Counts of a run, worked out of its steps."""

import dataclasses
import json

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.run_record.run_progress import Evaluation, Progress, progress_of, starting_progress


def test_counts_begin_at_the_initial_checkpoint() -> None:
    progress = starting_progress(dataclasses.replace(GPT3_175B, global_batch_size=2304), 9)
    assert (progress.seed, progress.steps, progress.trained_tokens) == (9, 0, 0)
    assert progress.iteration == 2666  # 6,144,000 / 2304, rounded down
    assert progress.consumed_samples == progress.scheduled_samples == 6_144_000


def test_skipped_steps_consume_samples_but_do_not_move_the_schedule() -> None:
    progress = dataclasses.replace(starting_progress(GPT3_175B, 9), steps=10, skipped_steps=3)
    assert progress.iteration == 4010
    assert progress.consumed_samples == 6_144_000 + 10 * 1536
    assert progress.scheduled_samples == 6_144_000 + 7 * 1536
    assert progress.trained_tokens == 10 * 1536 * 2048


def test_progress_passes_through_json() -> None:
    progress = Progress(7, 48_000, 12, 16, steps=8, evaluations=[Evaluation(768, 4.75)])
    assert progress_of(json.loads(json.dumps(dataclasses.asdict(progress)))) == progress


def test_progress_of_another_version_is_read() -> None:
    fields = dataclasses.asdict(Progress(7, 48_000, 12, 16, steps=8))
    del fields["skipped_in_a_row"]
    assert progress_of({**fields, "rollbacks": [], "watch": {}}) == Progress(7, 48_000, 12, 16, steps=8)
    for damaged in ({**fields, "steps": None}, {"seed": 7}):
        with pytest.raises(ValueError, match=r"Expected|missing"):
            progress_of(damaged)
