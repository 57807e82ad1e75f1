"""What inspect says of a checkpoint, in every format; what is no checkpoint or a harmful one is refused in a line."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.formats.zarr_arrays import create_array
from checkpoint_convert.inspection.inspect_checkpoint import (
    format_checkpoint_report,
    inspect_checkpoint,
)
from tests.checkpoint_convert.checkpoints import raw_bytes, write_dcp, write_safetensors, write_sharded_safetensors
from tests.support import assert_refused, command

TENSORS = {
    "model/a": torch.randn(50, 70, generator=torch.Generator().manual_seed(1)),
    "model/b": torch.arange(9).to(torch.bfloat16) - 4,
    "step": torch.tensor(4000),
}


def write_zarr(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype != torch.int64:
            dtype = str(tensor.dtype).removeprefix("torch.")
            store = create_array(folder / name.replace("/", "."), tensor.shape, dtype, [7] * tensor.ndim)
            store.write(tensor.float().numpy().astype(store.dtype.numpy_dtype)).result()


@pytest.mark.parametrize("write", [write_zarr, write_dcp, write_sharded_safetensors])
def test_figures_are_those_of_the_values(write: Any, tmp_path: Path) -> None:
    write(tmp_path / "c", TENSORS)
    arrays = {
        array.name.replace("model.", "model/"): array for array in inspect_checkpoint(tmp_path / "c", md5=True).arrays
    }
    assert set(arrays) == set(TENSORS) - ({"step"} if write is write_zarr else set())
    for name, found in arrays.items():
        values = TENSORS[name].double().numpy()
        assert (found.shape, found.dtype) == (values.shape, str(TENSORS[name].dtype).removeprefix("torch."))
        assert (found.min, found.max) == (values.min(), values.max())
        assert found.mean == pytest.approx(values.mean())
        assert found.sd == pytest.approx(values.std())
        assert found.zeros == (values == 0).sum()
        assert found.md5 == hashlib.md5(raw_bytes(TENSORS[name])).hexdigest()


def test_command_prints_a_table_or_json(tmp_path: Path) -> None:
    write_random_paxml(tmp_path / "p", seed=1, sizes=ModelSizes(layers=2, hidden=16, heads=2, vocab=64))
    done = command("checkpoint_convert", "inspect", tmp_path / "p", "--array", "mdl_vars*layer_norm.bias")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/p: PAXML zarr, 2 arrays\n" in done.stdout
    assert "\nmdl_vars.params.lm.\n" in done.stdout
    assert "total: 64 values, 256 bytes (" in done.stdout
    report = json.loads(command("checkpoint_convert", "inspect", tmp_path / "p", "--json").stdout)
    assert (len(report["arrays"]), report["nan"], report["inf"]) == (57, 0, 0)  # with PAXML's counters
    lines = format_checkpoint_report(inspect_checkpoint(tmp_path / "p")).splitlines()
    assert max(map(len, lines)) < 200
    assert_refused(
        command("checkpoint_convert", "inspect", tmp_path / "p", "--array", "none"), "has 'none' in its name"
    )


def test_values_that_are_not_finite_are_counted_and_left_out(tmp_path: Path) -> None:
    write_safetensors(
        tmp_path / "x.safetensors",
        {
            "some": torch.tensor([1.0, math.nan, math.inf, -math.inf, 0.0, 3.0, -0.0]),
            "none": torch.tensor([math.nan]),
            "empty": torch.zeros(0, 3),
        },
    )
    some, none, empty = inspect_checkpoint(tmp_path / "x.safetensors").arrays
    assert (some.nan, some.inf, some.zeros, some.min, some.max, some.mean) == (1, 2, 2, 0.0, 3.0, 1.0)
    assert (none.nan, none.min, none.max, none.mean, none.sd) == (1, None, None, None, None)
    assert (empty.zeros, empty.min) == (0, None)


def test_missing_chunks_are_listed_and_fail(tmp_path: Path) -> None:
    write_random_paxml(tmp_path / "p", seed=1, sizes=ModelSizes(layers=2, hidden=16, heads=2, vocab=64))
    array = "mdl_vars.params.lm.final_ln.bias"
    (tmp_path / "p" / array / "1").unlink()
    done = command("checkpoint_convert", "inspect", tmp_path / "p")
    assert_refused(done, f"1 chunks have no file, first of {array}", status=1)
    assert f"{array}: 1 chunks have no file; its values were not read" in done.stdout
    (found,) = inspect_checkpoint(tmp_path / "p", array).arrays
    assert (found.min, found.mean, found.missing_chunks) == (None, None, 1)
    assert json.loads(command("checkpoint_convert", "inspect", tmp_path / "p", "--json").stdout)["arrays"]
