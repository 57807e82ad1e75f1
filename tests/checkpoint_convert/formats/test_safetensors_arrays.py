"""Safetensors files: damaged headers are refused, and an index has to agree with the files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_convert.formats.safetensors_arrays import safetensors_arrays
from checkpoint_convert.inspection.inspect_checkpoint import inspect_checkpoint
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import write_safetensors, write_sharded_safetensors

TENSORS = {"model/a": torch.ones(50, 70), "model/b": torch.arange(9).to(torch.bfloat16), "step": torch.tensor(4000)}


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"dtype": "F32", "shape": [1 << 50], "data_offsets": [0, 4]}, "in bytes 0 to 4 of 4"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "in bytes 0 to 8 of 4"),
        ({"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}, "Expected `int` >= 0"),
        ({"dtype": "Q9", "shape": [1], "data_offsets": [0, 4]}, "Q9"),
        ([], "not a safetensors file"),
    ],
    ids=["huge", "beyond", "negative", "dtype", "list"],
)
def test_damaged_safetensors_are_refused(entry: Any, complaint: str, tmp_path: Path) -> None:
    header = json.dumps({"a": entry}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(InputError) as error:
        inspect_checkpoint(path)
    assert complaint in str(error.value)
    path.write_bytes((1 << 60).to_bytes(8, "little") + header)
    with pytest.raises(InputError, match="not a safetensors file"):
        inspect_checkpoint(path)


def test_index_of_safetensors_has_to_agree_with_the_files(tmp_path: Path) -> None:
    write_sharded_safetensors(tmp_path / "c", TENSORS)
    (tmp_path / "c" / "model-1.safetensors").unlink()
    with pytest.raises(InputError, match=r"lists model/b in model-1\.safetensors, which does not hold it"):
        safetensors_arrays(tmp_path / "c")


def test_array_in_two_files_or_not_in_the_index_is_refused(tmp_path: Path) -> None:
    write_sharded_safetensors(tmp_path / "c", TENSORS)
    index = tmp_path / "c" / "model.safetensors.index.json"
    listed = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": {name: listed[name] for name in ("model/a", "model/b")}}))
    with pytest.raises(InputError, match=r"does not list step, which model-2\.safetensors holds"):
        safetensors_arrays(tmp_path / "c")
    index.write_text("[]")
    with pytest.raises(InputError, match=r"index\.json: Expected `object`, got `array`"):
        safetensors_arrays(tmp_path / "c")
    write_safetensors(tmp_path / "c" / "model-3.safetensors", {"step": TENSORS["step"]})
    with pytest.raises(InputError, match=r"holds step, which model-2\.safetensors holds too"):
        safetensors_arrays(tmp_path / "c")
