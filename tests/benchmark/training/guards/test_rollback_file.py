"""Rollbacks as they lie in a run's folder, and what a run's progress makes of them."""

import dataclasses
import json
from pathlib import Path

import pytest

import benchmark.training.guards.rollback_file as rollback_module
from benchmark.config.run_config import RunConfig, Submission
from benchmark.config.schedule import learning_rate
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, whole_checkpoints
from benchmark.training.engine.run_progress import Progress, Rollback, starting_progress
from benchmark.training.guards.rollback_file import (
    describe_rollback,
    finish_rollback,
    is_hopeless,
    plan_rollback,
    read_rollbacks,
    require_rollbacks_allowed,
    rollback_path,
    take_over,
    write_rollback,
)
from stage.errors import InputError
from tests.benchmark.tiny import CPU, TINY

START = TINY.start_samples


def configured(run_dir: Path, policy: str) -> RunConfig:
    system = dataclasses.replace(CPU, micro_batch_size=2)
    return RunConfig(
        benchmark=TINY,
        system=system,
        run_dir=run_dir,
        on_spike=policy,  # type: ignore[arg-type]
        submission=Submission(submission_division="open"),
    )


def progress_after(steps: int, *rollbacks: Rollback) -> Progress:
    return dataclasses.replace(starting_progress(TINY, 1), steps=steps, rollbacks=list(rollbacks))


def with_checkpoints(run_dir: Path, *steps: int) -> Path:
    for number in steps:
        checkpoint_path(run_dir, number).mkdir(parents=True)
    return run_dir


def test_run_goes_back_to_the_newest_checkpoint_before_the_spike(tmp_path: Path) -> None:
    run_dir = with_checkpoints(tmp_path, 4, 8, 10)
    skip = plan_rollback(configured(run_dir, "skip-data"), progress_after(11), 10)
    assert skip == Rollback(to_steps=8, spike_steps=10, first_sample=START + 8 * 12, end_sample=START + 11 * 12)
    slower = plan_rollback(configured(run_dir, "lower-rate"), progress_after(11), 10)
    assert slower == Rollback(8, 10, START + 8 * 12, START + 8 * 12, rate_factor=0.5, rate_until=108)
    assert plan_rollback(configured(run_dir, "skip-data"), progress_after(4), 4).to_steps == 0
    assert "36 samples from 48,096 on are left out" in describe_rollback(skip)
    assert "0.5 times as high until 108 steps" in describe_rollback(slower)


def test_checkpoints_beyond_are_set_aside(tmp_path: Path) -> None:
    run_dir = with_checkpoints(tmp_path, 4, 8, 12)
    write_rollback(run_dir, Rollback(4, 6, START + 48, START + 72))
    assert whole_checkpoints(run_dir) == [4, 8, 12]
    finish_rollback(run_dir)
    assert whole_checkpoints(run_dir) == [4]
    assert len(list(run_dir.glob("checkpoints/set_aside/*spike*/step_*"))) == 2
    with_checkpoints(tmp_path, 16)  # of the run that went on
    finish_rollback(run_dir)
    assert whole_checkpoints(run_dir) == [4, 16]


def test_start_finishes_what_a_killed_one_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that was killed when all checkpoints were moved, and nothing noted it."""
    run_dir = with_checkpoints(tmp_path, 4, 8)
    write_rollback(run_dir, Rollback(4, 6, START + 48, START + 72))
    with monkeypatch.context() as patch:
        patch.setattr(rollback_module, "_write", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finish_rollback(run_dir)
    assert whole_checkpoints(run_dir) == [4]
    finish_rollback(run_dir)
    assert whole_checkpoints(run_dir) == [4]
    assert json.loads(rollback_path(run_dir).read_text())["done"] is True
    assert len(read_rollbacks(run_dir)) == 1


def test_however_often_a_start_is_repeated_it_goes_back_once(tmp_path: Path) -> None:
    one = Rollback(8, 10, START + 96, START + 132)
    for _ in range(3):  # killed before its first checkpoint, each time
        progress = progress_after(8)
        assert take_over(progress, [one]) == [one]
        assert progress.consumed_samples == START + 132
    later = progress_after(12, one)  # from a checkpoint of the run that went on
    assert take_over(later, [one]) == []
    assert later.consumed_samples == START + 12 * 12 + 36
    assert take_over(progress_after(12), [one]) == []  # of a run that never went back
    earlier = progress_after(4)  # the checkpoint it went back to is lost
    assert take_over(earlier, [one]) == [one]
    assert [earlier.samples_after(steps) - START for steps in (4, 7, 8, 9)] == [48, 84, 132, 144]


def test_samples_left_out_count_for_nothing_but_the_place_in_the_data() -> None:
    progress = progress_after(9, Rollback(8, 10, START + 96, START + 132))
    plain = progress_after(9)
    assert progress.consumed_samples == plain.consumed_samples + 36
    for name in ("iteration", "scheduled_samples", "trained_tokens"):
        assert getattr(progress, name) == getattr(plain, name)


def test_windows_left_out_one_after_the_other_and_overlapping() -> None:
    first = Rollback(8, 10, START + 96, START + 132)
    again = Rollback(8, 9, START + 132, START + 156)
    for both in ((first, again), (again, first)):
        assert progress_after(8, *both).consumed_samples == START + 156
        assert progress_after(7, *both).consumed_samples == START + 84
        assert progress_after(10, *both).consumed_samples == START + 180
    around = Rollback(4, 6, START + 48, START + 144)
    assert progress_after(4, first, around).consumed_samples == START + 144
    assert progress_after(5, first, around).consumed_samples == START + 156


def test_training_ends_with_its_data() -> None:
    left_out = Rollback(8, 10, START + 96, START + 132)
    assert [progress_after(steps).finished(TINY) for steps in (11, 12)] == [False, True]
    assert [progress_after(steps, left_out).finished(TINY) for steps in (8, 9)] == [False, True]
    assert progress_after(9, left_out).consumed_samples == TINY.train_samples


def test_rate_is_lowered_for_the_steps_it_was_asked_for() -> None:
    slower = Rollback(8, 10, START + 96, START + 96, rate_factor=0.5, rate_until=11)
    assert [progress_after(steps, slower).rate_factor for steps in range(7, 13)] == [1, 0.5, 0.5, 0.5, 1, 1]
    assert progress_after(9, slower, slower).rate_factor == 0.25
    plain = learning_rate(START, TINY.optimizer)
    assert plain * progress_after(3).rate_factor == plain


@pytest.mark.parametrize(("spikes", "hopeless"), [([], False), ([40], False), ([40, 45], True), ([40, 400], False)])
def test_third_spike_at_a_place_is_hopeless(spikes: list[int], hopeless: bool) -> None:
    progress = progress_after(50, *[Rollback(32, steps, START, START) for steps in spikes])
    assert is_hopeless(progress, 48) is hopeless


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"done": true}',
        '{"rollbacks": [{"x": 1}], "done": true}',
        '{"rollbacks": [[1]], "done": true}',
        '{"rollbacks": [{"to_steps": "8", "spike_steps": 1, "first_sample": 1, "end_sample": 1}], "done": true}',
    ],
)
def test_file_that_no_run_wrote_is_refused(content: str, tmp_path: Path) -> None:
    rollback_path(tmp_path).write_text(content)
    with pytest.raises(InputError, match="not what a run writes"):
        read_rollbacks(tmp_path)


def test_run_that_went_back_does_not_go_on_in_the_closed_division(tmp_path: Path) -> None:
    config = configured(tmp_path, "skip-data")
    closed = dataclasses.replace(config, on_spike="note", submission=Submission())
    require_rollbacks_allowed(closed)
    write_rollback(tmp_path, Rollback(8, 10, START + 96, START + 132))
    require_rollbacks_allowed(config)
    with pytest.raises(InputError, match="--submission-division open"):
        require_rollbacks_allowed(closed)
