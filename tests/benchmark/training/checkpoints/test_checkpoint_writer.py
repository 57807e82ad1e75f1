"""Writing checkpoints: in the background, whole or not there."""

import hashlib
import itertools
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter

from benchmark.config.run_config import RunConfig
from benchmark.run_record.checkpoint_list import newest_checkpoint, whole_checkpoints
from benchmark.run_record.file_names import checkpoint_path
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.checkpoints.checkpoint_writer import ALIGNMENT, Checkpointer, host_copies, packed
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.train_state import TrainState
from benchmark.training.train import train
from tests.benchmark.runs import events, figures, loaded_state, run, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes


@pytest.fixture(scope="module")
def whole(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """Figures of a run that nothing interrupts, and that keeps its two newest checkpoints and every third."""
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    values = run(inputs, run_dir, benchmark=SHORT, save_interval=1, keep_checkpoints=2, keep_every=3)
    assert whole_checkpoints(run_dir) == [3, 5, 6]
    return values


def _train_and_kill_in_save(config: RunConfig, moment: str) -> str:
    """kill -9 of all processes at a moment of the second checkpoint's writing."""
    target = getattr(Checkpointer, moment)
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

    setattr(Checkpointer, moment, killing)
    return train(config)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["_write_shard", "_publish"])
def test_kill_while_saving_leaves_the_one_before(
    moment: str, whole: list[list[float]], inputs: Inputs, tmp_path: Path
) -> None:
    config = inputs.config(tmp_path / "run", SHORT, save_interval=2)
    with pytest.raises(RuntimeError, match="died with signal 9"):
        in_processes(1, _train_and_kill_in_save, config, moment)
    assert newest_checkpoint(config.run_dir) == 2
    assert in_processes(1, train, config) == ["success"]
    assert figures(config.run_dir)[0][-4:] == whole[0][-4:]
    assert sorted(path.name for path in (config.run_dir / "checkpoints").iterdir()) == [
        "step_00000004",
        "step_00000006",
    ]


def _train_with_full_disk(config: RunConfig, at_step: int) -> str:
    write = FileSystemWriter.write_data

    def full(writer: FileSystemWriter, *arguments: Any) -> Any:
        if f"{at_step:08d}" in str(writer.path) and os.environ["RANK"] == "1":
            raise OSError(28, "No space left on device")
        return write(writer, *arguments)

    setattr(FileSystemWriter, "write_data", full)  # noqa: B010
    return train(config)


@pytest.mark.slow
def test_checkpoint_that_cannot_be_written_is_reported_and_training_goes_on(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", SHORT, system=system_of(2), save_interval=2)
    assert in_processes(2, _train_with_full_disk, config, 4) == ["success"] * 2
    messages = [event["value"] for event in events(config.run_dir, "message")]
    assert any("the checkpoint after 4 steps could not be written: OSError: [Errno 28]" in line for line in messages)
    assert [event["steps"] for event in events(config.run_dir, "checkpoint_written")] == [2, 6]
    names = sorted(path.name for path in (config.run_dir / "checkpoints").iterdir())
    assert names == ["step_00000002", "step_00000006"]


def _save_and_change_weights(config: RunConfig) -> tuple[str, str, dict[str, str]]:
    """Digests of the weights when saved and after they were changed; and those that are loaded back."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        checkpoints = Checkpointer(state, config.run_dir, config.checkpoints)
        saved = _digest(state)
        checkpoints.save()
        for tensor in state.tensors().values():
            tensor.add_(1)
        result = checkpoints.wait()
        assert result is not None and result.failure is None
        changed = _digest(state)
        load_checkpoint(state, checkpoint_path(config.run_dir, 0))
        return saved, changed, {"loaded": _digest(state)}


def _digest(state: TrainState) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for _, tensor in sorted(state.tensors().items()):
        digest.update(np.ascontiguousarray(local(tensor).numpy()).tobytes())
    return digest.hexdigest()


@pytest.mark.slow
def test_training_goes_on_while_what_was_saved_stays(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", system=system_of(2, tensor_parallel=2))
    for saved, changed, loaded in in_processes(2, _save_and_change_weights, config):
        assert loaded["loaded"] == saved != changed


@pytest.mark.parametrize("seed", range(8))
def test_parts_lie_side_by_side(seed: int) -> None:
    generator = random.Random(seed)
    largest = generator.choice([1, 3000, 40_000])
    sizes = [generator.randrange(largest) for _ in range(generator.randrange(60))]
    positions, lengths = packed(sizes, slab=8192)
    ranges = sorted((*position, size) for position, size in zip(positions, sizes, strict=True) if size)
    assert all(start % ALIGNMENT == 0 and start + size <= lengths[slab] for slab, start, size in ranges)
    for (slab, start, size), (next_slab, next_start, _) in itertools.pairwise(ranges):
        assert slab < next_slab or start + size <= next_start
    assert len(positions) == len(sizes)


def rounded_up(size: int) -> int:
    """As PyTorch takes page-locked memory."""
    return 1 << max(0, size - 1).bit_length()


@pytest.mark.parametrize("data_parallel", [1, 2, 16])
def test_a_rank_of_the_175b_model_takes_little_more_than_its_state(data_parallel: int) -> None:
    """Twelve layers with TP 4, weights and two moments, sharded."""
    hidden, shared = 12288, 4
    matrices = [3 * hidden // shared, hidden // shared, 4 * hidden // shared, 4 * hidden // shared]
    rows = [rows * hidden for rows in matrices] + [hidden] * 6 + [3 * hidden // shared, 4 * hidden // shared]
    sizes = [4 * -(-values // data_parallel) for values in rows] * 12 * 3
    of_each = sum(map(rounded_up, sizes))
    _, lengths = packed(sizes)
    together = sum(map(rounded_up, lengths))
    assert of_each > 1.6 * sum(sizes)
    assert together < 1.04 * sum(sizes)


def test_room_on_a_cpu() -> None:
    parts = {"a": torch.ones(3, 5), "b": torch.zeros(0, 4), "c": torch.arange(7, dtype=torch.bfloat16)}
    copies = host_copies(parts)
    for name, part in parts.items():
        assert (copies[name].shape, copies[name].dtype) == (part.shape, part.dtype)
        assert copies[name].untyped_storage().nbytes() == part.nbytes
