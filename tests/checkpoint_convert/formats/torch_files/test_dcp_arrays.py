"""Distributed checkpoints are read as data: nothing in them runs, and no number in them takes memory."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.inspection.checkpoint_files import open_checkpoint
from checkpoint_convert.inspection.inspect_checkpoint import inspect_checkpoint
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp
from tests.support import assert_refused, command

TENSORS = {
    "model/a": torch.randn(50, 70, generator=torch.Generator().manual_seed(1)),
    "model/b": torch.arange(9).to(torch.bfloat16) - 4,
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_shards_of_a_distributed_checkpoint_are_put_together(protocol: int, tmp_path: Path) -> None:
    """As a run with two devices writes them."""
    whole_tensor = torch.arange(60.0).reshape(10, 6)
    storage, chunks = {}, []
    for rank, rows in enumerate((slice(0, 7), slice(7, 10))):
        path = tmp_path / f"__{rank}_0.distcp"
        with path.open("wb") as file:
            file.write(b"before")
            torch.save(whole_tensor[rows].clone(), file)
            length = file.tell() - 6
        offset, size = torch.Size([rows.start, 0]), torch.Size([rows.stop - rows.start, 6])
        chunks.append(ChunkStorageMetadata(offset, size))
        storage[MetadataIndex("a", offset, rank)] = _StorageInfo(path.name, 6, length)
    entry = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size([10, 6]), chunks)
    metadata = Metadata({"a": entry}, storage_data=storage)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata, protocol))
    array = open_checkpoint(tmp_path).arrays["a"]
    np.testing.assert_array_equal(array.read(whole_box((10, 6))), whole_tensor.numpy())
    np.testing.assert_array_equal(array.read((slice(5, 9), slice(1, 3))), whole_tensor[5:9, 1:3].numpy())
    chunks.pop()
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata, protocol))
    assert_refused(command("checkpoint_convert", "inspect", tmp_path), "its shards do not make up its shape [10, 6]")


def test_damaged_distributed_checkpoints_are_refused(tmp_path: Path) -> None:
    write_dcp(tmp_path / "c", TENSORS)
    (shards,) = (tmp_path / "c").glob("*.distcp")
    content = shards.read_bytes()
    shards.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="missing, or shorter than the checkpoint's metadata says"):
        inspect_checkpoint(tmp_path / "c")
    shards.write_bytes(b"PK" + bytes(len(content)))
    with pytest.raises(InputError, match="cannot be read"):
        inspect_checkpoint(tmp_path / "c")
    (tmp_path / "c" / ".metadata").write_bytes(b"\x80\x04")
    with pytest.raises(InputError, match="not the metadata of a distributed checkpoint"):
        inspect_checkpoint(tmp_path / "c")
