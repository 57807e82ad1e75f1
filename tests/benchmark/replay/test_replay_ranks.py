"""The processes of a replay, and what this machine can do."""

import dataclasses
from pathlib import Path

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.replay.recorded_config import Replacements, recorded_config
from benchmark.replay.replay_ranks import replay_on_ranks, require_room
from benchmark.replay.replayed_steps import Stretch
from benchmark.training.checkpoints.checkpoint_folder import progress_as_json
from benchmark.training.engine.distributed import read_environment
from benchmark.training.engine.run_progress import starting_progress
from stage.errors import InputError
from tests.benchmark.tiny import CPU


def test_what_this_machine_cannot_do() -> None:
    with pytest.raises(InputError, match=r"174\.6e9 parameters take 2,794 GB, this machine has"):
        require_room(RunConfig(GPT3_175B, CPU))
    with pytest.raises(InputError, match="the layout takes 64 machines: start replay on each of their devices"):
        require_room(RunConfig(GPT3_175B, SYSTEMS["dgxh100_n64"]))
    with pytest.raises(InputError, match=r"the layout takes 8 GPUs; PyTorch sees \d here"):
        require_room(RunConfig(GPT3_175B, dataclasses.replace(SYSTEMS["h200_n8"], nodes=1, pipeline_parallel=1)))


@pytest.mark.slow
def test_what_a_process_finds_wrong_is_one_line(run_dir: Path, tmp_path: Path) -> None:
    config = recorded_config(run_dir, Replacements(checkpoint=tmp_path / "none"))
    progress = progress_as_json(starting_progress(config.benchmark, 17))
    with pytest.raises(InputError, match=r"none: no such folder; name the initial checkpoint with --checkpoint$"):
        replay_on_ranks(Stretch(config, 0, progress, 1, ()), read_environment())
