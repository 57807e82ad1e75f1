"""Reading a run's checkpoint: into any topology, and only what was written."""

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.train import train
from stage.errors import InputError
from tests.benchmark.runs import events, figures, loaded_state, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes
from tests.support import command

ONE = system_of(1, micro_batch_size=2)
TENSOR_PIPELINE = system_of(4, tensor_parallel=2, pipeline_parallel=2, micro_batch_size=6)


@pytest.fixture(scope="module")
def begun(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run of tensor and pipeline parallelism with a checkpoint after 4 of its 6 steps, and no later one."""
    folder = tmp_path_factory.mktemp("begun")
    config = inputs.config(folder / "run", SHORT, system=TENSOR_PIPELINE, save_interval=2, keep_checkpoints=1)
    assert in_processes(4, train, config) == ["success"] * 4
    whole = figures(config.run_dir)
    shutil.copytree(config.run_dir, folder / "whole")
    (config.run_dir / "summary.json").unlink()
    config_4 = inputs.config(folder / "to_4", SHORT, system=TENSOR_PIPELINE, save_interval=2)
    assert in_processes(4, _train_to, config_4, 4) == ["interrupted"] * 4
    assert figures(config_4.run_dir)[0] == whole[0][: len(figures(config_4.run_dir)[0])]
    return config_4


def _train_to(config: RunConfig, last: int) -> str:
    """Ask for a stop so that the checkpoint of step ``last`` is the newest."""
    save = Checkpointer.save

    def counted(checkpointer: Checkpointer) -> float:
        if checkpointer._state.progress.steps >= last - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return save(checkpointer)

    setattr(Checkpointer, "save", counted)  # noqa: B010
    return train(config)


def continue_from(begun: RunConfig, steps: int, run_dir: Path, **fields: Any) -> RunConfig:
    """A copy of the begun run whose newest checkpoint is that of ``steps``."""
    shutil.copytree(begun.run_dir, run_dir)
    for path in (run_dir / "checkpoints").iterdir():
        if path.name > checkpoint_path(run_dir, steps).name:
            shutil.rmtree(path)
    return begun.changed(run_dir=run_dir, checkpoint=None, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("system", [TENSOR_PIPELINE, ONE, system_of(2, replicas=2)], ids=lambda system: system.name)
def test_any_topology_continues(system: Any, begun: RunConfig, inputs: Inputs, tmp_path: Path) -> None:
    uninterrupted = figures(begun.run_dir.with_name("whole"))
    fitted = inputs.config(tmp_path, system=system).system
    config = continue_from(begun, 4, tmp_path / "run", system=fitted)
    assert in_processes(system.num_devices, train, config) == ["success"] * system.num_devices
    found = [part[-len(expected) :] for part, expected in zip(figures(config.run_dir), uninterrupted, strict=True)]
    last_two = [found[0][-2:], found[1][-2:], found[2][-1:]]
    expected_two = [uninterrupted[0][-2:], uninterrupted[1][-2:], uninterrupted[2][-1:]]
    if system is TENSOR_PIPELINE:
        assert last_two == expected_two  # to the bit
    for part, expected in zip(last_two, expected_two, strict=True):
        assert part == pytest.approx(expected, rel=1e-5)
    samples = [event["consumed_samples"] for event in events(config.run_dir, "step")][-2:]
    assert samples == [event["consumed_samples"] for event in events(begun.run_dir.with_name("whole"), "step")][-2:]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_checkpoints_are_verified_by_the_checksums_command(begun: RunConfig) -> None:
    folder = checkpoint_path(begun.run_dir, 4)
    listed = folder / "digests.md5"
    assert command("checksums", "verify", folder, "--manifest", listed).returncode == 0
    names = {line.split("  ")[1] for line in listed.read_text().splitlines()}
    assert names == {path.name for path in folder.iterdir()} - {"digests.md5"}


@pytest.mark.slow
def test_checkpoint_of_another_model_is_refused(begun: RunConfig, tmp_path: Path) -> None:
    config = continue_from(begun, 4, tmp_path / "run", system=ONE)
    smaller = dataclasses.replace(config.benchmark, model=dataclasses.replace(config.benchmark.model, hidden_size=80))
    recorded = json.loads((config.run_dir / "config.json").read_text())
    recorded["benchmark"]["model"]["hidden_size"] = 80
    (config.run_dir / "config.json").write_text(json.dumps(recorded))
    with pytest.raises(RuntimeError, match="belongs to another model"):
        in_processes(1, train, dataclasses.replace(config, benchmark=smaller))


def _save(config: RunConfig) -> float:
    """Save the initial state; the sum of this process's parts of it."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        writer = Checkpointer(state, config.run_dir, config.checkpoints)
        writer.save()
        written = writer.wait()
        assert written is not None and written.failure is None
        return sum(float(local(tensor).double().abs().sum()) for tensor in state.tensors().values())


def _load(config: RunConfig) -> tuple[str, float]:
    """What is complained of, and the sum of what is loaded over zeros."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        for tensor in state.tensors().values():
            tensor.zero_()
        complaint = ""
        try:
            load_checkpoint(state, checkpoint_path(config.run_dir, 0))
        except InputError as error:
            complaint = str(error)
        return complaint, sum(float(local(tensor).double().abs().sum()) for tensor in state.tensors().values())


@pytest.mark.slow
def test_all_of_what_two_processes_wrote_or_nothing_is_loaded(inputs: Inputs, tmp_path: Path) -> None:
    written = in_processes(2, _save, inputs.config(tmp_path / "run", system=system_of(2)))
    ((complaint, loaded),) = in_processes(1, _load, inputs.config(tmp_path / "run"))
    assert complaint == ""
    assert loaded == pytest.approx(sum(written), rel=1e-12)
    folder = checkpoint_path(tmp_path / "run", 0)
    for damage, name in ((flip_a_bit, "__1_0.distcp"), (Path.unlink, ".metadata"), (Path.unlink, "digests.md5")):
        damage(folder / name)
        ((complaint, loaded),) = in_processes(1, _load, inputs.config(tmp_path / "run"))
        assert complaint.startswith(f"{folder}: ")
        assert name in complaint
        assert complaint.endswith(" damaged or missing; use another checkpoint")
        assert loaded == 0
