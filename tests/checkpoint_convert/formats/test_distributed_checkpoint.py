"""Distributed checkpoints are read as data: nothing in them runs, and no number in them takes memory."""

import pickle
import random
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
from checkpoint_convert.formats.distributed_checkpoint import dcp_arrays
from foundation.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp, write_harmful_dcp

TENSORS = {
    "model/a": torch.randn(50, 70, generator=torch.Generator().manual_seed(1)),
    "model/b": torch.arange(9).to(torch.bfloat16) - 4,
    "step": torch.tensor(4000),
}


def test_every_box_is_the_tensors(tmp_path: Path) -> None:
    write_dcp(tmp_path, TENSORS)
    arrays = dcp_arrays(tmp_path)
    assert arrays.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        values = arrays[name].read(whole_box(tensor.shape))
        np.testing.assert_array_equal(values.astype(np.float64), tensor.double().numpy())
    found = arrays["model/a"].read((slice(7, 9), slice(3, 69)))
    np.testing.assert_array_equal(found, TENSORS["model/a"][7:9, 3:69].numpy())


def write_two_boxes(folder: Path, protocol: int, **changes: object) -> torch.Tensor:
    """Write an array as a run with two devices does, in files with something before and behind."""
    whole = torch.arange(60.0).reshape(10, 6)
    storage, chunks = {}, []
    for rank, rows in enumerate((slice(0, 7), slice(7, 10))):
        path = folder / f"__{rank}_0.distcp"
        with path.open("wb") as file:
            file.write(b"before")
            torch.save(whole[rows].clone(), file)
            length = file.tell() - 6
            file.write(b"behind")
        offset, size = torch.Size([rows.start, 0]), torch.Size([rows.stop - rows.start, 6])
        chunks.append(ChunkStorageMetadata(offset, size))
        storage[MetadataIndex("a", offset, rank)] = _StorageInfo(str(changes.get("path", path.name)), 6, length)
    if "chunks" in changes:
        chunks.pop()
    entry = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size([10, 6]), chunks)
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata({"a": entry}, storage_data=storage), protocol))
    return whole


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_boxes_in_several_files_are_put_together(protocol: int, tmp_path: Path) -> None:
    whole = write_two_boxes(tmp_path, protocol)
    array = dcp_arrays(tmp_path)["a"]
    np.testing.assert_array_equal(array.read(whole_box((10, 6))), whole.numpy())
    np.testing.assert_array_equal(array.read((slice(5, 9), slice(1, 3))), whole[5:9, 1:3].numpy())


def test_metadata_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    write_two_boxes(tmp_path, 4, chunks="one")
    with pytest.raises(InputError, match=r"its parts do not make up its shape \[10, 6\]"):
        dcp_arrays(tmp_path)
    write_two_boxes(tmp_path, 4, path="../outside")
    with pytest.raises(InputError, match=r"values in '\.\./outside', outside the folder"):
        dcp_arrays(tmp_path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    write_dcp(tmp_path, TENSORS)
    (path,) = tmp_path.glob("*.distcp")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="cannot be read"):
        dcp_arrays(tmp_path)["step"].read(())
    path.write_bytes(b"PK" + bytes(len(content)))
    with pytest.raises(InputError, match="cannot be read"):
        dcp_arrays(tmp_path)["step"].read(())


def test_metadata_that_names_other_classes_is_not_run(tmp_path: Path) -> None:
    write_harmful_dcp(tmp_path / "c", tmp_path / "made")
    with pytest.raises(InputError, match=r"not the metadata .* names builtins\.exec, which is not known"):
        dcp_arrays(tmp_path / "c")
    assert not (tmp_path / "made").exists()


def test_sizes_of_many_axes_are_refused(tmp_path: Path) -> None:
    """Copies of copies could take any amount of memory."""
    (tmp_path / ".metadata").write_bytes(b"\x80\x04ctorch\nSize\n(" + b"K\x01" * 65 + b"t\x85R.")
    with pytest.raises(InputError, match="65 axes"):
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
