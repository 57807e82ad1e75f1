"""Shards and their index, held against those that DCP writes from the same state."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.run_record.file_names import checkpoint_path
from benchmark.training.checkpoints import shard_index
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer
from benchmark.training.checkpoints.shard_index import RankShard, ShardBox, write_index
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from tests.benchmark.runs import loaded_state, system_of
from tests.benchmark.tiny import Inputs, in_processes


def _save_both(config: RunConfig, folder: Path, boxes_here: int) -> None:
    """Save the state as a run does, and by DCP alone into ``folder``; DCP loads the run's checkpoint."""
    setattr(shard_index, "BOXES_HERE", boxes_here)  # noqa: B010
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        checkpoints = Checkpointer(state, config.run_dir, config.checkpoints)
        checkpoints.save()
        result = checkpoints.wait()
        assert result is not None and result.failure is None, result
        dcp.save(state.tensors(), checkpoint_id=folder)
        expected = {name: local(tensor).clone() for name, tensor in state.tensors().items()}
        for tensor in state.tensors().values():
            tensor.zero_()
        dcp.load(state.tensors(), checkpoint_id=checkpoint_path(config.run_dir, 0))
        for name, tensor in state.tensors().items():
            assert torch.equal(local(tensor), expected[name]), name


def _boxes(folder: Path, metadata: Metadata) -> dict[Any, bytes]:
    """The archive of each box that has values, by tensor and offsets."""
    boxes = {}
    for index, file_range in metadata.storage_data.items():
        tensor = metadata.state_dict_metadata[index.fqn]
        assert isinstance(tensor, TensorStorageMetadata)
        (chunk,) = (chunk for chunk in tensor.chunks if chunk.offsets == index.offset)
        if chunk.sizes.numel():
            with (folder / file_range.relative_path).open("rb") as file:
                file.seek(file_range.offset)
                boxes[index.fqn, tuple(chunk.offsets), tuple(chunk.sizes)] = file.read(file_range.length)
    return boxes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "boxes_here"),
    [
        (system_of(1), 5000),
        (system_of(4, replicas=2, tensor_parallel=2), 0),  # the same index, by a process of its own
        (system_of(4, pipeline_parallel=2, replicas=2), 5000),
        (system_of(3), 5000),
    ],
    ids=["one rank", "replicas, tensor, in a process", "pipeline, replicas", "uneven"],
)
def test_boxes_are_those_of_dcp(system: System, boxes_here: int, inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", system=system)
    in_processes(system.num_devices, _save_both, config, tmp_path / "dcp", boxes_here)
    ours, theirs = checkpoint_path(config.run_dir, 0), tmp_path / "dcp"
    metadata, expected = (dcp.FileSystemReader(folder).read_metadata() for folder in (ours, theirs))
    assert _boxes(ours, metadata) == _boxes(theirs, expected)
    assert metadata.planner_data == expected.planner_data
    assert metadata.version == expected.version
    for name, tensor in expected.state_dict_metadata.items():
        found = metadata.state_dict_metadata[name]
        assert isinstance(tensor, TensorStorageMetadata) and isinstance(found, TensorStorageMetadata)
        if hasattr(tensor.properties, "strides"):  # PyTorch 2.15 writes them, and no reader of DCP needs them
            tensor.properties.strides = None
        assert (found.size, found.properties) == (tensor.size, tensor.properties)
    sizes = [path.stat().st_size for path in ours.glob("*.distcp")]
    assert len(sizes) == system.num_devices
    if system.num_devices == 1:
        assert metadata.state_dict_metadata == expected.state_dict_metadata
        assert metadata.storage_data == expected.storage_data
        assert (ours / "__0_0.distcp").read_bytes() == (theirs / "__0_0.distcp").read_bytes()
    if system.name == "cpu_p4":  # copies are shared out: no rank writes much more than another
        assert max(sizes) < 1.4 * min(sizes)


def _shard(file: str, boxes: list[ShardBox]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(RankShard(file, boxes)))


def _box(name: str, row: int) -> ShardBox:
    return ShardBox(name, (2, 3), "float32", (row, 0), (1, 3), 0, 12)


@pytest.mark.parametrize(
    ("boxes_here", "rows", "error", "values"),
    [(5000, (0,), ValueError, 3), (5000, (1, 1), ValueError, 6), (0, (0,), ChildProcessError, 3)],
)
def test_boxes_that_do_not_fill_a_tensor_are_an_error(
    boxes_here: int,
    rows: tuple[int, ...],
    error: type[Exception],
    values: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_index, "BOXES_HERE", boxes_here)
    shards = [_shard(f"__{rank}_0.distcp", [_box("w", row)]) for rank, row in enumerate(rows)]
    with pytest.raises(error, match=f"w: its boxes hold {values} of 6 values"):
        write_index(tmp_path, [1] * len(rows), shards)
    assert not (tmp_path / ".metadata").exists()


def test_an_index_names_each_box(tmp_path: Path) -> None:
    shards = [_shard(f"__{rank}_0.distcp", [_box(name, rank) for name in ("w", "v")]) for rank in range(2)]
    write_index(tmp_path, [2, 2], shards)
    metadata = dcp.FileSystemReader(tmp_path).read_metadata()
    named = {(index.fqn, *index.offset): entry.relative_path for index, entry in metadata.storage_data.items()}
    assert named == {(name, rank, 0): f"__{rank}_0.distcp" for name, rank in itertools.product(("w", "v"), range(2))}
