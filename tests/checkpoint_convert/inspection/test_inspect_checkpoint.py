"""Reports of inspect on a checkpoint in every format; a folder that is no checkpoint is refused in a line."""

import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_convert.formats.zarr_arrays import create_array
from checkpoint_convert.inspection.inspect_checkpoint import inspect_checkpoint
from tests.checkpoint_convert.checkpoints import raw_bytes, write_dcp, write_safetensors, write_sharded_safetensors
from tests.checkpoint_convert.in_process import run

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
    report = inspect_checkpoint(tmp_path / "c", md5=True)
    arrays = {array.name.replace("model.", "model/"): array for array in report.arrays}
    assert set(arrays) == set(TENSORS) - ({"step"} if write is write_zarr else set())
    for name, found in arrays.items():
        values = TENSORS[name].double().numpy()
        assert (found.shape, found.dtype) == (values.shape, str(TENSORS[name].dtype).removeprefix("torch."))
        assert (found.min, found.max) == (values.min(), values.max())
        assert found.mean == pytest.approx(values.mean())
        assert found.sd == pytest.approx(values.std())
        assert found.zeros == (values == 0).sum()
        assert found.md5 == hashlib.md5(raw_bytes(TENSORS[name])).hexdigest()


def test_command_prints_a_table_or_json(megatron: dict[str, Path]) -> None:
    done = run("inspect", megatron["bf16"], "--array", "exp_avg.*layernorm.bias")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{megatron['bf16']}: Megatron zarr, 3 arrays"
    assert lines[1].split() == "shape dtype chunks min max mean sd".split()  # no zeros, NaN or Inf anywhere
    assert lines[2] == "optimizer.state.exp_avg.language_model.encoder.final_layernorm.bias"
    assert lines[3].split()[:3] == ["36", "float32", "1"]
    assert lines[-1].startswith("total: 180 values, 720 bytes, 0 zeros")
    assert max(map(len, lines[1:])) <= 100
    report = json.loads(run("inspect", megatron["bf16"], "--json").stdout)
    assert (len(report["arrays"]), report["nan"], report["unread"]) == (64, 0, [])
    run("inspect", megatron["bf16"], "--array", "none").refused("none of its 64 arrays has 'none' in its name")


def test_values_that_are_not_finite_are_counted_and_left_out(tmp_path: Path) -> None:
    tensors = {
        "some": torch.tensor([1.0, math.nan, math.inf, -math.inf, 0.0, 3.0, -0.0]),
        "none": torch.tensor([math.nan]),
        "empty": torch.zeros(0, 3),
    }
    write_safetensors(tmp_path / "x.safetensors", tensors)
    some, none, empty = inspect_checkpoint(tmp_path / "x.safetensors").arrays
    assert (some.nan, some.inf, some.zeros, some.min, some.max, some.mean) == (1, 2, 2, 0.0, 3.0, 1.0)
    assert (none.nan, none.min, none.max, none.mean, none.sd) == (1, None, None, None, None)
    assert (empty.zeros, empty.min) == (0, None)


def test_an_array_of_many_empty_rows_is_answered_at_once(tmp_path: Path) -> None:
    create_array(tmp_path / "a", (10**15, 0), "float32", (1, 1))
    (found,) = inspect_checkpoint(tmp_path, md5=True).arrays
    assert (found.shape, found.missing_chunks, found.md5) == ((10**15, 0), 0, hashlib.md5(b"").hexdigest())


def test_missing_chunks_are_listed_and_fail(megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["fp32"], tmp_path / "m")
    array = "language_model.encoder.layers.mlp.dense_4h_to_h.bias"
    (source / array / "1.0").unlink()
    done = run("inspect", source)
    done.refused(f"1 chunks have no file, first of {array}", status=1)
    assert f"{array}: 1 chunks have no file; its values were not read" in done.stdout
    found = inspect_checkpoint(source, array).arrays[0]
    assert (found.min, found.mean, found.missing_chunks) == (None, None, 1)


def test_extra_arrays_that_cannot_be_read_are_told(megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["fp32"], tmp_path / "m")
    create_array(source / "rng_state", (4,), "float32", (2,))
    metadata = source / "rng_state" / ".zarray"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "dtype": "<c8"}))
    done = run("inspect", source)
    assert done.returncode == 0
    assert f"  not read: {source}/rng_state: values of complex64, expected numbers" in done.stdout
    done = run("compare", source, megatron["fp32"])
    assert (done.returncode, f"not compared: {source}/rng_state" in done.stdout) == (0, True)
    weights = source / "language_model.encoder.final_layernorm.bias" / ".zarray"  # of the model's own: refused
    weights.write_text(metadata.read_text())
    run("inspect", source).refused("final_layernorm.bias: values of complex64")


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    run("inspect", tmp_path / "none").refused("no such folder or .safetensors file")
    run("compare", tmp_path / "none", tmp_path).refused("no such folder or .safetensors file")
    run("inspect", tmp_path, "--workers", 0).refused("--workers 0: expected 1 to 4096")
    run("inspect", tmp_path).refused("holds no zarr arrays")
    for tracker, told in (("7", "iter_0000007"), ("release", "expected an iteration"), ("9" * 40, "expected")):
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(tracker)
        run("inspect", tmp_path).refused(told)
