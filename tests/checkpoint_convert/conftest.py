"""Checkpoints that several tests read, each made once in a test process."""

import dataclasses
from pathlib import Path

import pytest

from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path
from benchmark.training.train import train
from tests.benchmark.tiny import TINY, in_processes, write_inputs
from tests.checkpoint_convert.tiny import ODD, TWO_PROCESSES, WHOLE, MakePaxml, write_megatron
from tests.support import make_paxml


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> MakePaxml:
    made: dict[str, Path] = {}

    def make(arguments: str) -> Path:
        if arguments not in made:
            made[arguments] = make_paxml(tmp_path_factory.mktemp("paxml") / "checkpoint", arguments)
        return made[arguments]

    return make


@pytest.fixture(scope="session")
def paxml(make_once: MakePaxml) -> Path:
    return make_once(ODD)


@pytest.fixture(scope="session")
def megatron(make_once: MakePaxml, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_megatron(make_once(WHOLE), tmp_path_factory.mktemp("megatron"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run of one step on two processes, in its run folder."""
    folder = tmp_path_factory.mktemp("trained")
    one_step = dataclasses.replace(TINY, train_samples=4001 * 12)
    config = write_inputs(folder).config(folder / "run", one_step, TWO_PROCESSES, save_interval=1)
    assert in_processes(2, train, config) == ["completed"] * 2
    return checkpoint_path(folder / "run", 1)
