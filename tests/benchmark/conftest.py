import shutil
from pathlib import Path

import pytest

from benchmark.training.train import train
from tests.benchmark.tiny import SHORT, Inputs, in_processes, write_inputs, write_whole_chunks


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Files of the tiny benchmark, which tests only read."""
    made = write_inputs(tmp_path_factory.mktemp("tiny"))
    whole_chunks = write_whole_chunks(made.folder / "paxml", tmp_path_factory.mktemp("whole_chunks") / "checkpoint")
    return Inputs(made.folder, whole_chunks)


@pytest.fixture(scope="session")
def honest_run(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps of the tiny benchmark in one process, with evidence and checkpoints after two, four and six."""
    run_dir = tmp_path_factory.mktemp("honest") / "run"
    config = inputs.config(run_dir, SHORT, evidence=True, save_interval=2, keep_checkpoints=3)
    assert in_processes(1, train, config) == ["success"]
    return run_dir


@pytest.fixture
def run_dir(honest_run: Path, tmp_path: Path) -> Path:
    """A copy of the honest run that a test may damage."""
    return Path(shutil.copytree(honest_run, tmp_path / "run"))
