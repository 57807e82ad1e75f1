"""The shards of a checkpoint in PyTorch's DCP format, and their index, ``.metadata``, without DCP's global plan.

DCP collects the plans of all ranks on rank 0, removes copies and sends the plans back. At 512 ranks of the 175B model
this is 17 s of Python, in which rank 0's training thread gets a tenth of its calls (python -m
tests.speed.checkpoint_index). Here each rank knows its boxes by the placement of its tensors. Ranks that hold copies of
a box agree without a message on the rank that writes it. Rank 0 receives the boxes as bytes and hands them to another
process, python -m benchmark.training.checkpoints.shard_index FOLDER, which writes the index; 0.03 s of Python remain.
"""

import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.filesystem import _StorageInfo, _StoragePrefix
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.checkpoint.planner_helpers import _create_write_items
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor

from foundation.errors import InputError, run_command
from foundation.git import REPOSITORY

BOXES_HERE = 5000
"""Largest number of boxes that rank 0 indexes in its own process, in a tenth of a second. Starting another process
takes some seconds of a core."""
INDEX_LIMIT_S = 900.0
"""Seconds that the process which writes the index may take."""


@dataclass(frozen=True)
class ShardBox:
    """A box of a tensor, in one range of a rank's file."""

    name: str
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    dtype: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    start: int
    """First byte in the file."""
    length: int


@dataclass(frozen=True)
class RankShard:
    """The file that a rank wrote, and its boxes in their order in the index."""

    file: str
    boxes: Sequence[ShardBox]


def tensors_to_write(tensors: Mapping[str, Tensor], second_copies: Collection[str]) -> list[str]:
    """Return the names of the tensors whose local part this rank writes, in order.

    Ranks that hold a copy of the same part call this with the same tensors and placements: each tensor goes to the copy
    with the fewest bytes so far. ``second_copies``: tensors that another pipeline stage writes. Empty parts are not
    written.
    """
    names: list[str] = []
    bytes_by_axes: dict[tuple[int, ...], list[int]] = {}
    for name, tensor in tensors.items():
        assert isinstance(tensor, DTensor)
        part, mesh, coordinate = tensor.to_local(), tensor.device_mesh, tensor.device_mesh.get_coordinate()
        assert coordinate is not None
        if name in second_copies or part.numel() == 0:
            continue
        axes = tuple(axis for axis, placement in enumerate(tensor.placements) if placement.is_replicate())
        copies, own_copy = 1, 0
        for axis in axes:
            copies, own_copy = copies * mesh.size(axis), own_copy * mesh.size(axis) + coordinate[axis]
        loads = bytes_by_axes.setdefault(axes, [0] * copies)
        copy = loads.index(min(loads))
        loads[copy] += part.nbytes
        if copy == own_copy:
            names.append(name)
    return names


def write_shard(
    folder: Path, rank: int, tensors: Mapping[str, Tensor], names: Sequence[str], copies: Mapping[str, Tensor]
) -> RankShard:
    """Write this rank's shard: the ``copies`` of the tensors with these names. Raises OSError."""
    items: dict[str, WriteItem] = {name: _create_write_items(name, tensors[name])[0] for name in names}
    plan = SavePlan(list(items.values()), storage_data=_StoragePrefix(f"__{rank}_"))
    future = dcp.FileSystemWriter(folder).write_data(plan, _CopiesPlanner(copies))
    ranges = {result.index.fqn: result.storage_data for result in future.value()}
    boxes = [_box_of(item, ranges[name]) for name, item in items.items()]
    return RankShard(f"__{rank}_0.distcp", boxes)


class _CopiesPlanner(dcp.DefaultSavePlanner):
    """Write the copies of the tensors, whose values training does not change."""

    def __init__(self, copies: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._copies = copies

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self._copies[index.fqn]


def _box_of(item: WriteItem, file_range: _StorageInfo) -> ShardBox:
    assert item.tensor_data is not None
    chunk, dtype = item.tensor_data.chunk, str(item.tensor_data.properties.dtype).removeprefix("torch.")
    shape, start, length = tuple(item.tensor_data.size), file_range.offset, file_range.length
    return ShardBox(item.index.fqn, shape, dtype, tuple(chunk.offsets), tuple(chunk.sizes), start, length)


def write_index(folder: Path, counts: Sequence[int], shards: Sequence[msgspec.Raw]) -> None:
    """Write ``.metadata`` for the shards of all ranks. Called on rank 0.

    ``counts``: boxes of each rank. ``shards``: a :class:`RankShard` of each rank, in MessagePack. Raises OSError, and
    ValueError for boxes that do not fill their tensors. Raises ChildProcessError if the process that writes a large
    index fails.
    """
    if sum(counts) <= BOXES_HERE:
        _write_index(folder, [msgspec.msgpack.decode(shard, type=RankShard) for shard in shards])
        return
    content = msgspec.msgpack.encode(list(shards))
    command = [sys.executable, "-m", __name__, str(folder.absolute())]
    finished = subprocess.run(
        command, input=content, cwd=REPOSITORY, capture_output=True, timeout=INDEX_LIMIT_S, check=False
    )
    if finished.returncode:
        lines = finished.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise ChildProcessError(f"the index of the checkpoint: status {finished.returncode}: {lines[-1]}")


def _write_index(folder: Path, shards: Sequence[RankShard]) -> None:
    tensors: dict[str, TensorStorageMetadata] = {}
    results: list[WriteResult] = []
    for shard in shards:
        for box in shard.boxes:
            if box.name not in tensors:
                properties = TensorProperties(getattr(torch, box.dtype))
                tensors[box.name] = TensorStorageMetadata(properties, torch.Size(box.shape), [])
            chunks, offsets = tensors[box.name].chunks, torch.Size(box.offsets)
            file_range = _StorageInfo(shard.file, box.start, box.length)
            results.append(WriteResult(MetadataIndex(box.name, offsets, len(chunks)), box.length, file_range))
            chunks.append(ChunkStorageMetadata(offsets, torch.Size(box.sizes)))
    for name, tensor in tensors.items():
        values = sum(chunk.sizes.numel() for chunk in tensor.chunks)
        if values != tensor.size.numel() or len({chunk.offsets for chunk in tensor.chunks}) < len(tensor.chunks):
            raise ValueError(f"{name}: its boxes hold {values:,} of {tensor.size.numel():,} values")
    names = {name: (name,) for name in tensors}
    dcp.FileSystemWriter(folder).finish(Metadata(dict(tensors), planner_data=names), [results])


def main(arguments: Sequence[str]) -> int:
    """Write the index of the folder named by the argument, for the shards on standard input."""
    if len(arguments) != 1:
        raise InputError("expected the folder of a checkpoint that is being written")
    _write_index(Path(arguments[0]), msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[RankShard]))
    return 0


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1:]))
