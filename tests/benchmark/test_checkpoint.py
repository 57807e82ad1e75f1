"""Checkpoints of runs: written in the background, whole or not there, verified before they are read."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.distributed.checkpoint import FileSystemWriter

import benchmark.training.checkpoints.checkpoint_writer as writer_module
from benchmark.config.run_config import RunConfig
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, newest_checkpoint
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import TrainState, empty_state, load_initial
from benchmark.training.train import train
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from tests.benchmark.runs import events, figures, run, system_of
from tests.benchmark.tiny import Inputs, in_processes
from tests.support import command

ONE = system_of(1, micro_batch_size=2)
TENSOR_PIPELINE = system_of(4, tensor_parallel=2, pipeline_parallel=2, micro_batch_size=6)


@pytest.fixture(scope="module")
def begun(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run of tensor and pipeline parallelism with a checkpoint after 8 of its 12 steps, and no later one."""
    folder = tmp_path_factory.mktemp("begun")
    config = inputs.config(folder / "run", system=TENSOR_PIPELINE, save_interval=4, keep_checkpoints=1)
    assert in_processes(4, train, config) == ["completed"] * 4
    whole = figures(config.run_dir)
    shutil.copytree(config.run_dir, folder / "whole")
    (config.run_dir / "summary.json").unlink()
    config_8 = inputs.config(folder / "to_8", system=TENSOR_PIPELINE, save_interval=4)
    assert in_processes(4, _train_to, config_8, 8) == ["interrupted"] * 4
    assert figures(config_8.run_dir)[0] == whole[0][: len(figures(config_8.run_dir)[0])]
    return config_8


def _train_to(config: RunConfig, last: int) -> str:
    """Ask for a stop so that the checkpoint of step ``last`` is the newest."""
    save, count = Checkpointer.save, 0

    def counted(checkpointer: Checkpointer) -> float:
        nonlocal count
        count += 1
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
    return dataclasses.replace(begun, run_dir=run_dir, checkpoint=None, **fields)


@pytest.mark.parametrize("system", [TENSOR_PIPELINE, ONE, system_of(2, replicas=2)], ids=lambda system: system.name)
def test_any_topology_continues(system: Any, begun: RunConfig, inputs: Inputs, tmp_path: Path) -> None:
    uninterrupted = figures(begun.run_dir.with_name("whole"))
    fitted = inputs.config(tmp_path, system=system).system
    config = continue_from(begun, 8, tmp_path / "run", system=fitted)
    assert in_processes(system.num_devices, train, config) == ["completed"] * system.num_devices
    found = [part[-len(expected) :] for part, expected in zip(figures(config.run_dir), uninterrupted, strict=True)]
    last_four = [found[0][-4:], found[1][-4:], found[2][-1:]]
    expected_four = [uninterrupted[0][-4:], uninterrupted[1][-4:], uninterrupted[2][-1:]]
    if system is TENSOR_PIPELINE:
        assert last_four == expected_four  # to the bit
    for part, expected in zip(last_four, expected_four, strict=True):
        assert part == pytest.approx(expected, rel=1e-5)
    samples = [event["consumed_samples"] for event in events(config.run_dir, "step")][-4:]
    assert samples == [event["consumed_samples"] for event in events(begun.run_dir.with_name("whole"), "step")][-4:]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["__0_0.distcp", "__3_0.distcp", ".metadata", "progress.json"])
@pytest.mark.parametrize("damage", [flip_a_bit, Path.unlink], ids=["one bit", "gone"])
def test_damage_is_found_before_anything_is_loaded(name: str, damage: Any, begun: RunConfig, tmp_path: Path) -> None:
    config = continue_from(begun, 8, tmp_path / "run", system=ONE)
    folder = checkpoint_path(config.run_dir, 8)
    damage(folder / name)
    with pytest.raises(RuntimeError, match=r"InputError: .*step_00000008.*(damaged|missing).*delete"):
        in_processes(1, train, config)
    assert len(events(config.run_dir, "step")) == len(events(begun.run_dir, "step"))


def test_checkpoints_are_verified_by_the_checksums_command(begun: RunConfig) -> None:
    folder = checkpoint_path(begun.run_dir, 8)
    listed = folder / "digests.md5"
    assert command("checksums", "verify", folder, "--manifest", listed).returncode == 0
    names = {line.split("  ")[1] for line in listed.read_text().splitlines()}
    assert names == {path.name for path in folder.iterdir()} - {"digests.md5"}


def _train_and_kill_in_save(config: RunConfig, moment: str) -> str:
    """kill -9 of all processes at a moment of the second checkpoint's writing."""
    target = getattr(writer_module.Checkpointer, moment)
    count = 0

    def killing(checkpointer: Checkpointer, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2 and moment == "_publish":
            os.kill(os.getpid(), signal.SIGKILL)
        result = target(checkpointer, *arguments)
        if count == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(writer_module.Checkpointer, moment, killing)
    return train(config)


@pytest.mark.parametrize("moment", ["save", "_write_shards", "_publish"])
def test_kill_while_saving_leaves_the_one_before(moment: str, inputs: Inputs, tmp_path: Path) -> None:
    whole = run(inputs, tmp_path / "whole", ONE)
    config = inputs.config(tmp_path / "run", save_interval=4)
    with pytest.raises(RuntimeError, match="died with signal 9"):
        in_processes(1, _train_and_kill_in_save, config, moment)
    assert newest_checkpoint(config.run_dir) == 4
    assert in_processes(1, train, config) == ["completed"]
    assert figures(config.run_dir)[0][-8:] == whole[0][-8:]
    assert sorted(path.name for path in (config.run_dir / "checkpoints").iterdir()) == [
        "step_00000008",
        "step_00000012",
    ]


def test_newest_and_every_so_many_are_kept(inputs: Inputs, tmp_path: Path) -> None:
    run(inputs, tmp_path / "run", save_interval=1, keep_checkpoints=2, keep_every=5)
    kept = sorted(int(path.name.removeprefix("step_")) for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == [5, 10, 11, 12]


def _train_with_full_disk(config: RunConfig, at_step: int) -> str:
    write = FileSystemWriter.write_data

    def full(writer: FileSystemWriter, *arguments: Any) -> Any:
        if f"{at_step:08d}" in str(writer.path) and os.environ["RANK"] == "1":
            raise OSError(28, "No space left on device")
        return write(writer, *arguments)

    setattr(FileSystemWriter, "write_data", full)  # noqa: B010
    return train(config)


def test_checkpoint_that_cannot_be_written_is_reported_and_training_goes_on(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", system=system_of(2), save_interval=4)
    assert in_processes(2, _train_with_full_disk, config, 8) == ["completed"] * 2
    messages = [event["value"] for event in events(config.run_dir, "message")]
    assert any("the checkpoint after 8 steps could not be written: OSError: [Errno 28]" in line for line in messages)
    assert [event["steps"] for event in events(config.run_dir, "checkpoint_written")] == [4, 12]
    kept = sorted(path.name for path in (config.run_dir / "checkpoints").iterdir())
    assert kept == ["step_00000004", "step_00000008.partial", "step_00000012"]


def _save_and_change_weights(config: RunConfig) -> tuple[str, str, dict[str, str]]:
    """Digests of the weights when saved and after they were changed; and those that are loaded back."""
    with joined_world(config.system, read_environment()) as world:
        state = empty_state(config, world, starting_progress(config.benchmark, 1))
        assert config.checkpoint is not None
        load_initial(state, MegatronCheckpoint(config.checkpoint))
        checkpoints = Checkpointer(state, world.device)
        saved = _digest(state)
        checkpoints.save()
        for tensor in state.tensors().values():
            tensor.add_(1)
        written = checkpoints.wait()
        assert written is not None and written.failure is None
        changed = _digest(state)
        load_checkpoint(state, checkpoint_path(config.run_dir, 0), world)
        return saved, changed, {"loaded": _digest(state)}


def _digest(state: TrainState) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for _, tensor in sorted(state.tensors().items()):
        digest.update(np.ascontiguousarray(local(tensor).numpy()).tobytes())
    return digest.hexdigest()


def test_training_goes_on_while_what_was_saved_stays(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", system=system_of(2, tensor_parallel=2))
    for saved, changed, loaded in in_processes(2, _save_and_change_weights, config):
        assert loaded["loaded"] == saved != changed


def test_checkpoint_of_another_model_is_refused(begun: RunConfig, tmp_path: Path) -> None:
    config = continue_from(begun, 8, tmp_path / "run", system=ONE)
    smaller = dataclasses.replace(config.benchmark, model=dataclasses.replace(config.benchmark.model, hidden_size=80))
    recorded = json.loads((config.run_dir / "config.json").read_text())
    recorded["benchmark"]["model"]["hidden_size"] = 80
    (config.run_dir / "config.json").write_text(json.dumps(recorded))
    with pytest.raises(RuntimeError, match="belongs to another model"):
        in_processes(1, train, dataclasses.replace(config, benchmark=smaller))


def test_missing_list_of_digests_is_an_error(begun: RunConfig, tmp_path: Path) -> None:
    config = continue_from(begun, 8, tmp_path / "run", system=ONE)
    (checkpoint_path(config.run_dir, 8) / "digests.md5").unlink()
    with pytest.raises(RuntimeError, match=r"digests.md5"):
        in_processes(1, train, config)
