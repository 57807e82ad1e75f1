"""Safetensors files: damaged ones are refused, and an index has to agree with the files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_convert.formats.safetensors_arrays import safetensors_arrays
from foundation.errors import InputError
from tests.checkpoint_convert.checkpoints import write_safetensors, write_sharded_safetensors

TENSORS = {"a": torch.ones(50, 70), "b": torch.arange(9).to(torch.bfloat16), "step": torch.tensor(4000)}


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [1 << 50], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "Q9", "shape": [1], "data_offsets": [0, 4]},
        [],
    ],
)
def test_damaged_files_are_refused(entry: Any, tmp_path: Path) -> None:
    header = json.dumps({"a": entry}).encode()
    for size in (len(header), 1 << 60):
        (tmp_path / "x.safetensors").write_bytes(size.to_bytes(8, "little") + header + bytes(4))
        with pytest.raises(InputError, match=r"x\.safetensors: not a safetensors file"):
            safetensors_arrays(tmp_path)


def test_boxes_and_values_without_axes(tmp_path: Path) -> None:
    tensor = torch.arange(60.0).reshape(10, 6).bfloat16()
    write_safetensors(tmp_path / "x.safetensors", {"a": tensor, "step": torch.tensor(7), "none": torch.zeros(0, 3)})
    arrays = safetensors_arrays(tmp_path)
    assert arrays["a"].read((slice(2, 5), slice(1, 2))).tolist() == tensor[2:5, 1:2].tolist()
    assert arrays["step"].read(()).item() == 7
    assert arrays["none"].read((slice(0, 0), slice(0, 3))).shape == (0, 3)
    (tmp_path / "x.safetensors").unlink()
    with pytest.raises(InputError, match=r"x\.safetensors: .*No such file"):
        arrays["a"].read((slice(0, 10), slice(0, 6)))


def test_index_has_to_agree_with_the_files(tmp_path: Path) -> None:
    write_sharded_safetensors(tmp_path / "c", TENSORS)
    assert safetensors_arrays(tmp_path / "c").keys() == TENSORS.keys()
    index = tmp_path / "c" / "model.safetensors.index.json"
    listed = json.loads(index.read_text())["weight_map"]
    for wrong in ({"step": "model-0.safetensors"}, {"other": "model-1.safetensors"}):
        index.write_text(json.dumps({"weight_map": {**listed, **wrong}}))
        with pytest.raises(InputError, match=f"does not list {next(iter(wrong))} where it is"):
            safetensors_arrays(tmp_path / "c")
    write_safetensors(tmp_path / "c" / "model-3.safetensors", {"step": TENSORS["step"]})
    with pytest.raises(InputError, match=r"holds step, which model-2\.safetensors holds too"):
        safetensors_arrays(tmp_path / "c")


def test_arrays_of_many_axes_are_refused(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "U8", "shape": [1] * 20_000, "data_offsets": [0, 1]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"a")
    with pytest.raises(InputError, match=r"a\.safetensors: a: 20,000 axes, but at most 32 are possible"):
        safetensors_arrays(tmp_path / "a.safetensors")
