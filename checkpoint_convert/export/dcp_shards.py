"""Write PyTorch's distributed checkpoint format (DCP): shards, each in a file of its own, then what is where.

The shards are ``torch.save`` archives, as PyTorch's own writer makes them; a shard may be found under several names.
"""

import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from checkpoint_convert.export.export_files import HashingFile, Made
from checkpoint_convert.formats.boxes import Box, shape_of
from checkpoint_convert.formats.torch_files.dcp_arrays import METADATA


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the checkpoint."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Shard:
    """A part of one or more tensors, all of one shape and dtype, in the file ``file``."""

    file: str
    box: Box
    tensors: tuple[StoredTensor, ...]

    @property
    def bytes(self) -> int:
        """Of its values."""
        return math.prod(shape_of(self.box)) * self.tensors[0].dtype.itemsize


@dataclass(frozen=True)
class StoredObject:
    """Something that is no tensor, in a file of its own; several may share one."""

    name: str
    file: str


def shard_file(number: int) -> str:
    """As PyTorch names the files of one process."""
    return f"__0_{number}.distcp"


def save_shard(tensor: Tensor, file: HashingFile) -> None:
    """Its values and nothing more: of a view the whole storage would be written."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    torch.save(tensor if whole else tensor.clone(), cast(IO[bytes], file))  # it only calls write and flush


def save_object(value: Any, file: HashingFile) -> None:
    torch.save(value, cast(IO[bytes], file))


def write_metadata(
    folder: Path, shards: Sequence[Shard], made: Mapping[str, Made], objects: Sequence[StoredObject] = ()
) -> None:
    """Write ``.metadata``; ``made`` are the files, by the names that shards and objects know them by."""
    chunks: dict[StoredTensor, list[ChunkStorageMetadata]] = {}
    places: dict[MetadataIndex, _StorageInfo] = {}
    for shard in shards:
        offsets = torch.Size([part.start for part in shard.box])
        for tensor in shard.tensors:
            known = chunks.setdefault(tensor, [])
            place = MetadataIndex(tensor.name, offsets, len(known))
            places[place] = _StorageInfo(shard.file, 0, made[shard.file].bytes)
            known.append(ChunkStorageMetadata(offsets, torch.Size(shape_of(shard.box))))
    names: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {
        tensor.name: TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), torch.Size(tensor.shape), parts)
        for tensor, parts in chunks.items()
    }
    for stored in objects:
        names[stored.name] = BytesStorageMetadata()
        places[MetadataIndex(stored.name)] = _StorageInfo(stored.file, 0, made[stored.file].bytes)
    metadata = Metadata(
        state_dict_metadata=names,
        planner_data={name: (name,) for name in names},
        storage_data=places,
        storage_meta=StorageMeta(),
    )
    with (folder / METADATA).open("wb") as file:
        pickle.dump(metadata, file)
