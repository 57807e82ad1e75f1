"""Distributed checkpoints are read as data: nothing in them runs, and no number in them takes memory."""

import pickle
import random
import struct
import sys
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

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
    with pytest.raises(InputError, match=r"its parts do not make up its shape 10x6"):
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


def write_metadata(folder: Path, **changes: object) -> None:
    """Write the metadata of one array of 2 x 2 in two boxes, with parts replaced by name."""
    offset, size, empty = (torch.Size(numbers) for numbers in ((0, 0), (2, 2), (2, 0)))
    parts: dict[str, Any] = {"chunks": [ChunkStorageMetadata(offset, size)], "size": size, "file": "__0_0.distcp"}
    parts |= {"properties": TensorProperties(torch.float32), "name": "a", "offset": 0, "stored": "a", "empty": empty}
    parts |= changes
    entry = TensorStorageMetadata(parts["properties"], parts["size"], parts["chunks"])
    storage = {MetadataIndex(parts["stored"], offset): _StorageInfo(parts["file"], parts["offset"], 9)}
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata({parts["name"]: entry}, storage_data=storage)))


BOX = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([2, 2]))
CONTRADICTIONS: dict[str, tuple[dict[str, object], str]] = {
    "many axes": ({"size": torch.Size([1] * 65)}, "65 axes"),
    "no size": ({"size": 4}, "int instead of a size"),
    "an object as a size": ({"size": BOX}, r"metadata\.ChunkStorageMetadata instead of a size|tuple instead of a size"),
    "texts as sizes": ({"size": ("a", "b")}, "a size or offset that is not a number of 0 or more"),
    "negative sizes": ({"size": (-2, -2)}, "a size or offset that is not a number of 0 or more"),
    "long integers": ({"size": (1 << 63, 2)}, "a size or offset that is not a number of 0 or more"),
    "boxes of fewer axes": ({"size": (2,)}, "zip"),
    "a box beyond the shape": ({"size": (1, 2)}, "a: values beyond its shape 1x2"),
    "a box twice": ({"chunks": [BOX, BOX]}, "a: its parts do not make up its shape 2x2"),
    "a box for all": ({"chunks": [BOX] * 10_002}, "more boxes of tensors than the files hold"),
    "no boxes": ({"chunks": None}, "more boxes of tensors than the files hold"),
    "another box": ({"chunks": [1]}, "int instead of an object of ChunkStorageMetadata"),
    "no dtype": ({"properties": "float32"}, "a: a dtype that is not read here"),
    "no such dtype": ({"properties": TensorProperties(torch.complex64)}, "a: a dtype that is not read here"),
    "no file": ({"stored": "b"}, "a: no file for its values at 0x0"),
    "a long file name": ({"file": "a" * 256}, "str instead of a name of at most 255 characters"),
    "a long array name": ({"name": "a" * 4097, "stored": "a"}, "str instead of a name of at most 4,096 characters"),
    "a number as a name": ({"name": 5}, "int instead of a name"),
    "a folder above": ({"file": "../a"}, r"values in '\.\./a', outside the folder"),
    "a path": ({"file": PurePosixPath("/etc/passwd")}, "outside the folder|instead of a name"),
    "no file name": ({"file": "."}, r"values in '\.', outside the folder"),
    "an offset that is none": ({"offset": -1}, "a size or offset that is not a number of 0 or more"),
}


@pytest.mark.parametrize(("changes", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_each_part_of_the_metadata_is_checked(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    write_metadata(tmp_path, **changes)
    with pytest.raises(InputError, match=message) as error:
        dcp_arrays(tmp_path)
    assert len(str(error.value)) < 600 + len(str(tmp_path))


def test_parts_are_checked_by_metadata_that_is_whole(tmp_path: Path) -> None:
    write_metadata(tmp_path)
    assert dcp_arrays(tmp_path)["a"].shape == (2, 2)
    write_metadata(tmp_path, file=PurePosixPath("__0_0.distcp"))
    assert dcp_arrays(tmp_path)["a"].shape == (2, 2)


def shared_tuples(levels: int) -> bytes:
    """The operations of a tuple whose items are the same tuple, level below level."""
    places = [struct.pack("<I", 10_000 + level) for level in range(levels)]
    return b")" + b"".join(b"r" + place + b"0j" + place + b"j" + place + b"\x86" for place in places)


HOSTILE = {
    "an attribute of a class": b"cpathlib\nPurePosixPath\n(N}\x8c\x07__str__\x8c\x0b/etc/passwdstb",
    "a key of shared tuples": b"}" + shared_tuples(60) + b"Ns",
}


@pytest.mark.parametrize("operations", HOSTILE.values(), ids=HOSTILE)
def test_hostile_metadata_changes_nothing(operations: bytes, tmp_path: Path) -> None:
    """Two files of some 300 bytes: Python's unpickler changed every Path of the process by one, and hung by the
    other."""
    before = dict(vars(PurePosixPath))
    (tmp_path / ".metadata").write_bytes(b"\x80\x04" + operations + b".")
    with pytest.raises(InputError, match="not the metadata of a distributed checkpoint"):
        dcp_arrays(tmp_path)
    assert dict(vars(PurePosixPath)) == before


def test_shared_tuples_within_good_metadata_take_no_time(tmp_path: Path) -> None:
    write_metadata(tmp_path)
    content = (tmp_path / ".metadata").read_bytes()
    (tmp_path / ".metadata").write_bytes(content[:-1] + b"}" + shared_tuples(60) + b"Ns0.")
    assert dcp_arrays(tmp_path)["a"].shape == (2, 2)


def test_metadata_of_megatron_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its classes lie in another module and have further attributes."""
    name = "megatron.core.dist_checkpointing.strategies.torch"
    module = ModuleType(name)
    metadata_class = type("MCoreMetadata", (Metadata,), {"__module__": name})
    module.MCoreMetadata = metadata_class  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    for part in ("megatron", "megatron.core", "megatron.core.dist_checkpointing"):
        monkeypatch.setitem(sys.modules, f"{part}.strategies" if part.endswith("ing") else part, ModuleType(part))
    write_metadata(tmp_path)
    metadata = metadata_class(**vars(pickle.loads((tmp_path / ".metadata").read_bytes())))
    metadata.mcore_data = {"a": {"nd_reformulated_orig_global_shape": (2, 2)}}
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    monkeypatch.undo()
    assert dcp_arrays(tmp_path)["a"].shape == (2, 2)


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
