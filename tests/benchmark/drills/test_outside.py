"""Faults from outside find the process that they are about."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.commands.run_commands import TrainCommand
from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import parse_run
from benchmark.drills.outside import command_line, process_of
from benchmark.drills.practice import LAYOUTS, PracticeInputs, practice_config


@pytest.mark.slow
def test_process_of_a_rank(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import time; time.sleep(60)", "train", str(tmp_path)]
    ranks = [subprocess.Popen(words, env={**os.environ, "RANK": str(rank)}) for rank in range(2)]
    try:
        assert [process_of(tmp_path, rank) for rank in range(2)] == [rank.pid for rank in ranks]
        with pytest.raises(ProcessLookupError, match="rank 2"):
            process_of(tmp_path, 2)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_command_line_gives_the_configuration(tmp_path: Path) -> None:
    config = practice_config(PracticeInputs(tmp_path), tmp_path / "run", LAYOUTS["2 processes"])
    parsed = parse_run("train", command_line(config), TrainCommand, on_devices=True).config
    assert isinstance(parsed, RunConfig)
    assert parsed.benchmark.model == config.benchmark.model
    assert parsed.system == config.system
    assert parsed.data.train_data_path == config.data.train_data_path
    assert (parsed.save_interval, parsed.seed, parsed.run_dir) == (
        config.checkpoints.save_interval,
        config.data.seed,
        config.run_dir,
    )
    assert parsed.logging.evidence is config.logging.evidence is True
