"""What the files of a run tell of its checkpoint."""

import json
from pathlib import Path

import pytest

from checkpoint_convert.model_sizes.run_files import run_adam_step, run_config, run_iteration
from stage.errors import InputError


def write_run(folder: Path, **progress: int) -> Path:
    checkpoint = folder / "checkpoints" / "step_00000007"
    checkpoint.mkdir(parents=True)
    benchmark = {"model": {"num_attention_heads": 4}, "start_iterations": 4000}
    (folder / "config.json").write_text(json.dumps({"benchmark": benchmark}))
    fields = {"start_samples": 120, "global_batch_size": 10, "steps": 7, **progress}
    (checkpoint / "progress.json").write_text(json.dumps(fields))
    return checkpoint


def test_steps_of_a_run(tmp_path: Path) -> None:
    checkpoint = write_run(tmp_path, skipped_steps=2)
    assert (run_iteration(checkpoint), run_adam_step(checkpoint)) == (12 + 7, 4000 + 7 - 2)
    config = run_config(checkpoint)
    assert config is not None
    assert config.benchmark.model.num_attention_heads == 4


def test_what_is_no_runs_checkpoint_tells_nothing_and_damage_is_named(tmp_path: Path) -> None:
    assert (run_config(tmp_path), run_iteration(tmp_path), run_adam_step(tmp_path)) == (None, None, None)
    with pytest.raises(InputError, match="a batch of 0"):
        run_iteration(write_run(tmp_path / "a", global_batch_size=0))
    checkpoint = write_run(tmp_path / "b")
    (tmp_path / "b" / "config.json").write_text("[]")
    with pytest.raises(InputError, match="not a run's configuration"):
        run_config(checkpoint)
