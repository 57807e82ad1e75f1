"""Write PyTorch's distributed checkpoint format (DCP): boxes of tensors, each in a file of its own, and their index.

The files are ``torch.save`` archives, as PyTorch's own writer makes them; a box may be found under several names.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
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

from checkpoint_convert.formats.boxes import Box, shape_of


@dataclass(frozen=True)
class TensorBox:
    """A box of one or more tensors, all of one shape, dtype and values, in the file ``file``."""

    file: str
    box: Box
    names: tuple[str, ...]
    """Names of the tensors."""
    shape: tuple[int, ...]
    """Shape of each whole tensor."""
    dtype: torch.dtype


def dcp_file_name(number: int) -> str:
    """Return the name that PyTorch gives to a file of one process."""
    return f"__0_{number}.distcp"


def dcp_metadata(boxes: Sequence[TensorBox], sizes: Mapping[str, int], objects: Mapping[str, str]) -> bytes:
    """Return the content of ``.metadata``.

    ``sizes``: bytes of the files by name. ``objects``: the file of each thing that is no tensor; several may share one.
    """
    names: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    places: dict[MetadataIndex, _StorageInfo] = {}
    for one in boxes:
        offsets = torch.Size([side.start for side in one.box])
        for name in one.names:
            tensor = names.setdefault(
                name, TensorStorageMetadata(TensorProperties(dtype=one.dtype), torch.Size(one.shape), [])
            )
            assert isinstance(tensor, TensorStorageMetadata)
            place = MetadataIndex(name, offsets, len(tensor.chunks))
            places[place] = _StorageInfo(one.file, 0, sizes[one.file])
            tensor.chunks.append(ChunkStorageMetadata(offsets, torch.Size(shape_of(one.box))))
    for name, file in objects.items():
        names[name] = BytesStorageMetadata()
        places[MetadataIndex(name)] = _StorageInfo(file, 0, sizes[file])
    metadata = Metadata(
        state_dict_metadata=names,
        planner_data={name: (name,) for name in names},
        storage_data=places,
        storage_meta=StorageMeta(),
    )
    return pickle.dumps(metadata)
