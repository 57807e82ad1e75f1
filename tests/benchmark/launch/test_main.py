"""The launcher's command line."""

from pathlib import Path

import pytest

from benchmark.launch.__main__ import main, parse

TRAIN = ["--", "train", "rehearsal", "--seed", "1"]


def test_command_and_its_options_come_after_the_launcher_s(tmp_path: Path) -> None:
    options = parse(["--run-dir", str(tmp_path), "--nodes", "2", "--script=LOG", "--script=none", *TRAIN])
    assert (options.command, options.nodes, options.script) == (TRAIN[1:], 2, ["LOG", "none"])


def test_dry_run_prints_what_srun_would_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--run-dir", str(tmp_path / "log"), "--devices", "4", "--nodes", "2", "--dry-run", *TRAIN]
    assert main(words) == 0
    line = capsys.readouterr().out
    assert line.startswith("srun --kill-on-bad-exit=1 --wait=60 ") and "--ntasks=8 --ntasks-per-node=4" in line
    assert line.endswith("-m benchmark train rehearsal --nodes 2 --devices-per-node 4 --seed 1\n")
    assert not (tmp_path / "log").exists()
