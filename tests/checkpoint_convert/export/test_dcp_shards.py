"""A checkpoint that is written shard by shard is one that PyTorch loads, and so do our own readers."""

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from checkpoint_convert.export.dcp_shards import Shard, StoredTensor, save_shard, shard_file, write_metadata
from checkpoint_convert.export.export_files import HashingFile
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.torch_files.dcp_arrays import dcp_arrays

VALUES = torch.randn(4, 6)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """``whole`` and, under two names, an array in two shards that are views of a larger storage."""
    whole = StoredTensor("whole", (4, 6), torch.float32)
    parts = (StoredTensor("one", (4, 6), torch.bfloat16), StoredTensor("other", (4, 6), torch.bfloat16))
    boxes = [(slice(start, start + 2), slice(0, 6)) for start in (0, 2)]
    shards = [Shard(shard_file(0), whole_box((4, 6)), (whole,))]
    shards += [Shard(shard_file(number), box, parts) for number, box in enumerate(boxes, 1)]
    made = {}
    for shard in shards:
        file = HashingFile(tmp_path / shard.file)
        save_shard(VALUES[shard.box].to(shard.tensors[0].dtype), file)
        made[shard.file] = file.finish()
        file.close()
    assert [shard.bytes for shard in shards] == [96, 24, 24]
    write_metadata(tmp_path, shards, made)
    return tmp_path


def test_pytorch_loads_it(checkpoint: Path) -> None:
    targets = {"whole": torch.zeros(4, 6), "one": torch.zeros(4, 6, dtype=torch.bfloat16), "other": torch.zeros(4, 6)}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(targets, checkpoint_id=checkpoint)
    assert torch.equal(targets["whole"], VALUES)
    assert torch.equal(targets["one"], VALUES.bfloat16())
    assert torch.equal(targets["other"], VALUES.bfloat16().float())


def test_our_reader_finds_the_shards(checkpoint: Path) -> None:
    arrays = dcp_arrays(checkpoint)
    assert {name: (array.shape, array.chunks, array.dtype.name) for name, array in arrays.items()} == {
        "whole": ((4, 6), (4, 6), "float32"),
        "one": ((4, 6), (2, 6), "bfloat16"),
        "other": ((4, 6), (2, 6), "bfloat16"),
    }
    found = arrays["other"].read((slice(1, 3), slice(2, 5))).astype("f4")
    assert torch.equal(torch.from_numpy(found), VALUES[1:3, 2:5].bfloat16().float())


def test_of_a_view_only_its_values_are_written(tmp_path: Path) -> None:
    sizes = []
    for name, tensor in (("view", torch.zeros(100_000)[:10]), ("own", torch.zeros(10))):
        file = HashingFile(tmp_path / name)
        save_shard(tensor, file)
        sizes.append(file.finish().bytes)
        file.close()
    assert sizes[0] == sizes[1]
