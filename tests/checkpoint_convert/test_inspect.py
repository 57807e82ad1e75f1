"""What inspect says of a checkpoint, in every format; what is no checkpoint or a harmful one is refused in a line."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.zarr_arrays import create_array
from checkpoint_convert.inspection.array_blocks import blocks
from checkpoint_convert.inspection.inspect_checkpoint import (
    format_checkpoint_report,
    inspect_checkpoint,
)
from checkpoint_convert.inspection.value_statistics import Statistics, statistics
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import raw_bytes, write_dcp, write_safetensors
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


def write_sharded_safetensors(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir()
    weight_map = {}
    for number, (name, tensor) in enumerate(tensors.items()):
        weight_map[name] = f"model-{number}.safetensors"
        write_safetensors(folder / weight_map[name], {name: tensor})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


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
    assert (len(report["arrays"]), report["nan"], report["inf"]) == (48, 0, 0)
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


def test_digits_are_kept_far_from_zero() -> None:
    """The sum of squares minus the square of the sum would be noise here."""
    values = 1e9 + np.random.default_rng(0).normal(size=3_000_000)
    total = Statistics()
    for part in np.array_split(values, 7):
        total += statistics(part)
    assert total.sd == pytest.approx(values.std(), rel=1e-9)
    assert total.mean == pytest.approx(values.mean(), rel=1e-15)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("in_part", [False, True])
@pytest.mark.parametrize(
    ("shape", "chunks"), [((7, 30, 20), (1, 8, 5)), ((96,), (40,)), ((), ()), ((40, 30), (40, 30))]
)
def test_blocks_cover_every_value_once(
    shape: tuple[int, ...], chunks: tuple[int, ...], in_part: bool, in_order: bool
) -> None:
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    array = StoredArray(shape, values.dtype, chunks, lambda: (0, 0), values.__getitem__, in_part)
    read = [values[box] for box in blocks(array, 1000, in_order=in_order)]
    together = np.concatenate([block.reshape(-1) for block in read])
    np.testing.assert_array_equal(together if in_order else np.sort(together), values.reshape(-1))
    if in_part or in_order:
        assert max(block.nbytes for block in read) <= 1000


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"dtype": "F32", "shape": [1 << 50], "data_offsets": [0, 4]}, "in bytes 0 to 4 of 4"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "in bytes 0 to 8 of 4"),
        ({"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}, "shape (-1, -1)"),
        ({"dtype": "Q9", "shape": [1], "data_offsets": [0, 4]}, "KeyError('Q9')"),
        ([], "not a safetensors file"),
    ],
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
    assert_refused(command("checkpoint_convert", "inspect", tmp_path / "c"), "lists model/b in model-1.safetensors")


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    assert_refused(command("checkpoint_convert", "inspect", tmp_path / "none"), "no such folder or .safetensors file")
    assert_refused(command("checkpoint_convert", "inspect", tmp_path), "holds no zarr arrays")
