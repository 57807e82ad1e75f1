"""Files that are written tensor by tensor are those that the format's own library reads."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from checkpoint_convert.export.export_files import HashingFile
from checkpoint_convert.export.safetensors_stream import TensorLayout, write_safetensors
from stage.errors import InputError
from stage.outputs.digest import md5_file

TENSORS = {
    "b": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "a": torch.randn(3, 5).to(torch.bfloat16),
    "transposed": torch.randn(4, 2).T,
    "empty": torch.empty(0, 3),
    "one": torch.tensor(2.0),
}
LAYOUTS = {name: TensorLayout(tuple(tensor.shape), tensor.dtype) for name, tensor in TENSORS.items()}


def test_the_library_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    file = HashingFile(path)
    write_safetensors(file, LAYOUTS, {"format": "pt"}, TENSORS.__getitem__)
    md5 = file.finish()
    found = load_file(path)
    assert found.keys() == TENSORS.keys()
    assert all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in TENSORS.items()
    )
    with safe_open(path, "pt") as opened:
        assert opened.metadata() == {"format": "pt"}
    assert md5 == md5_file(path)


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    file = HashingFile(tmp_path / "x.safetensors")
    with pytest.raises(InputError, match=r"b: \[3, 5\] torch.bfloat16, expected \[2, 3\] torch.float32"):
        write_safetensors(file, LAYOUTS, {}, lambda name: TENSORS["a"])
    file.finish()
