"""Distributed checkpoints are read as data: nothing in them runs, and no number in them takes memory."""

import pickle
import random
import re
import struct
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
from checkpoint_convert.formats.dcp_arrays import dcp_arrays
from checkpoint_convert.inspection.checkpoint_files import open_checkpoint
from checkpoint_convert.inspection.inspect_checkpoint import inspect_checkpoint
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp, write_harmful_dcp
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


def test_metadata_that_names_other_classes_is_not_run(tmp_path: Path) -> None:
    write_harmful_dcp(tmp_path / "c", tmp_path / "made")
    done = command("checkpoint_convert", "inspect", tmp_path / "c")
    assert_refused(done, "c/.metadata: not the metadata", "it names builtins.exec, which no checkpoint needs")
    assert not (tmp_path / "made").exists()


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


@pytest.mark.parametrize(
    ("operations", "complaint"),
    [
        (b"}r" + struct.pack("<I", 1 << 31), "LONG_BINPUT 2147483648 in 9 bytes"),  # remembers 2**31 objects
        (b"}p4294967295\n", "PUT 4294967295 in 16 bytes"),
        (b"\x95" + struct.pack("<Q", 1 << 40), "FRAME 1099511627776 in 12 bytes"),
        (b"\x8d" + struct.pack("<Q", 1 << 40), "expected 1099511627776 bytes"),
        (b"\x8e" + struct.pack("<Q", 1 << 40), "expected 1099511627776 bytes"),
        (b"\x96" + struct.pack("<Q", 1 << 40), "expected 1099511627776 bytes"),
        (b"X" + struct.pack("<I", 1 << 31), "expected 2147483648 bytes"),
        (b"\x8b" + struct.pack("<i", -1), "long4 byte count < 0"),
        (b"\x8c\x09model", "expected 9 bytes"),
        (b"\xff", "opcode b'\\xff' unknown"),
    ],
)
def test_metadata_that_asks_for_memory_is_refused(operations: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x04" + operations + b".")
    with pytest.raises(InputError, match=re.escape(complaint)):
        dcp_arrays(tmp_path)


def test_metadata_damaged_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    write_dcp(tmp_path, TENSORS)
    whole_content = (tmp_path / ".metadata").read_bytes()
    draw, refused = random.Random(0), 0
    for _ in range(400):
        content = bytearray(whole_content)
        content[draw.randrange(len(content))] = draw.randrange(256)
        (tmp_path / ".metadata").write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
        try:
            dcp_arrays(tmp_path)
        except InputError:
            refused += 1
    assert refused > 200
