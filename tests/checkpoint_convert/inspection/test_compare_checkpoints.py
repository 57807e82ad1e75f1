"""Two checkpoints side by side: a conversion proves itself, and any difference is found, counted and named."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.boxes import Box, whole_box
from checkpoint_convert.formats.checkpoint_files import open_checkpoint
from checkpoint_convert.formats.step_files import common_files, write_counters
from checkpoint_convert.formats.zarr_arrays import create_array
from checkpoint_convert.inspection.compare_checkpoints import compare_checkpoints
from checkpoint_convert.inspection.megatron_view import as_megatron
from checksums.common_file import PARAM_GROUP
from foundation.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp, write_safetensors
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import AXES, opened, tiny_values, write_megatron, write_paxml

VIEWED = "encoder.layers.self_attention.query_key_value.weight"
QKV = "language_model.encoder.layers.self_attention.query_key_value.weight"


def change(folder: Path, array: str, place: tuple[int, ...], by: float) -> None:
    store = opened(folder / array)
    store[place].write(store.dtype.numpy_dtype.type(float(store[place].read().result()) + by)).result()


@pytest.fixture(scope="module")
def paxml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_paxml(tmp_path_factory.mktemp("p") / "paxml", tiny_values())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_conversion_is_the_source_value_by_value(dtype: str, paxml: Path, megatron: dict[str, Path]) -> None:
    comparison = compare_checkpoints(megatron[dtype], paxml)
    assert comparison.only_in == ([], [])
    assert len(comparison.arrays) == (64 if dtype == "bf16" else 48)
    assert all(array.same and array.place is None for array in comparison.arrays)
    done = run("compare", paxml, megatron[dtype])
    assert done.returncode == 0, done.stderr
    assert "arrays that both have are the same in every bit" in done.stdout
    assert "Adam's step: 4000 and 4000" in done.stdout


def test_counters_are_no_difference(paxml: Path, tmp_path: Path) -> None:
    done = run("compare", write_paxml(tmp_path / "without", tiny_values(), step=None), paxml)
    assert done.returncode == 0, done.stderr
    assert "Adam's step: not known and 4000" in done.stdout


def test_any_box_is_megatrons(tmp_path: Path) -> None:
    """The attention input's axis is merged of heads, query, key or value, and dimensions; positions are cut off."""
    axes = {**AXES, "P": 2060}
    values = tiny_values(axes)
    paxml, like = (
        open_checkpoint(write_paxml(tmp_path / "p", values, axes)),
        open_checkpoint(write_megatron(tmp_path / "m", values, "bf16", axes)),
    )
    view = as_megatron(paxml, like)
    assert view.arrays.keys() == like.arrays.keys()
    for name, array in view.arrays.items():
        assert (array.shape, array.dtype) == (like.arrays[name].shape, like.arrays[name].dtype)
        box = whole_box(array.shape)
        np.testing.assert_array_equal(array.read(box), like.arrays[name].read(box))
    boxes: list[Box] = [
        (slice(1, 2), slice(5, 31), slice(3, 36)),
        (slice(0, 1), slice(27, 54), slice(7, 8)),
        (slice(0, 2), slice(107, 108), slice(0, 0)),
    ]
    for box in boxes:
        for prefix in (WEIGHTS, MASTER_WEIGHTS):
            np.testing.assert_array_equal(
                view.arrays[prefix + VIEWED].read(box), like.arrays[prefix + VIEWED].read(box)
            )
    assert view.arrays[f"{WEIGHTS}embedding.position_embeddings.weight"].shape == (2048, 36)


def test_array_with_other_axes_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    create_array(tmp_path / "mdl_vars.params.lm.final_ln.scale", (2, 3), "float32", (2, 3))
    with pytest.raises(InputError, match=r"final_ln\.scale: shape \[2, 3\], expected the axes H"):
        as_megatron(open_checkpoint(tmp_path), open_checkpoint(megatron["fp32"]))


def test_adams_step_is_a_difference(megatron: dict[str, Path], trained: Path, tmp_path: Path) -> None:
    """It was found by nobody where both were Megatron's or DCP."""
    paxml = write_paxml(tmp_path / "paxml", tiny_values(), step=None)
    write_counters(paxml, 3999, 2)
    run("compare", paxml, megatron["fp32"]).refused("Adam's step is 3999 in one and 4000", status=1)
    other = shutil.copytree(megatron["fp32"], tmp_path / "other")
    (other / "common.pt").write_bytes(common_files("fp32", 192)["common.pt"])
    run("compare", other, megatron["fp32"]).refused("Adam's step is 192 in one and 4000", status=1)
    again = shutil.copytree(trained.parents[1], tmp_path / "run") / "checkpoints" / trained.name
    progress = json.loads((again / "progress.json").read_text())
    assert run("compare", trained, again).returncode == 0
    (again / "progress.json").write_text(json.dumps({**progress, "steps": 6}))
    run("compare", trained, again).refused("Adam's step is 4004 in one and 4005", status=1)
    for step in (192, 4000):  # as to-torch-dist writes it
        write_dcp(tmp_path / f"t{step}" / "iter_0004000", {"a": torch.zeros(2)})
        (tmp_path / f"t{step}" / "latest_checkpointed_iteration.txt").write_text("4000\n")
        (tmp_path / f"t{step}" / "iter_0004000" / "common.pt").write_bytes(common_files("fp32", step)["common.pt"])
    run("compare", tmp_path / "t192", tmp_path / "t4000").refused("Adam's step is 192 in one and 4000", status=1)


def test_settings_of_the_optimizer_are_a_difference(megatron: dict[str, Path], tmp_path: Path) -> None:
    group = {**PARAM_GROUP, "betas": [0.9, 0.999], "lr": 1e-4}
    for groups, message in (
        ([group], r"group 0 betas 1 is 0\.95 in one and 0\.999 in the other in common\.pt"),
        ([PARAM_GROUP, {**PARAM_GROUP, "step": 7}], "group 1 .* is missing in one and"),
    ):
        other = shutil.copytree(megatron["fp32"], tmp_path / "other", dirs_exist_ok=True)
        torch.save({"optimizer": {"param_groups": groups}}, other / "common.pt")
        done = run("compare", megatron["fp32"], other)
        assert done.returncode == 1
        assert re.search(message, done.stderr)
    done = run("compare", megatron["fp32"], other, "--json")
    assert "group 1 step is missing in one and 7 in the other" in json.loads(done.stdout)["settings"]


def test_changed_value_is_named_in_megatrons_places(paxml: Path, megatron: dict[str, Path], tmp_path: Path) -> None:
    output = shutil.copytree(megatron["bf16"], tmp_path / "m")
    change(output, "language_model.encoder.final_layernorm.bias", (5,), 0.25)
    change(output, QKV, (1, 40, 3), 0.5)
    change(output, QKV, (0, 0, 0), 0.25)
    done = run("compare", paxml, output)
    done.refused(f"{QKV} in 2 of 7,776 values, most at [1, 40, 3]", status=1)
    assert "62 of 64 arrays that both have are the same in every bit" in done.stdout
    found = json.loads(run("compare", paxml, output, "--json").stdout)["arrays"]
    assert [array["name"] for array in found[:2]] == [QKV, "language_model.encoder.final_layernorm.bias"]
    assert (found[0]["differing"], found[0]["place"]) == (2, [1, 40, 3])
    assert found[0]["largest_difference"] == pytest.approx(0.5, rel=0.01)
    assert compare_checkpoints(paxml, output, tolerance=1.0).arrays[0].same


@pytest.mark.parametrize("write", [write_dcp, write_safetensors])
def test_every_bit_counts_unless_there_is_a_tolerance(write: Any, tmp_path: Path) -> None:
    one = torch.tensor([[1.0, 2.0, math.nan], [0.0, 5.0, -8.0]])
    other = torch.tensor([[1.0, 2.5, math.nan], [-0.0, 5.25, -8.0]])
    paths = [tmp_path / name for name in ("one.safetensors", "other.safetensors")]
    for path, tensor in zip(paths, (one, other), strict=True):
        write(path, {"a": tensor})
    (array,) = compare_checkpoints(paths[0], paths[1]).arrays
    assert (array.differing, array.largest_difference, array.place) == (3, 0.5, (0, 1))
    assert array.values == ("2.0", "2.5")
    assert [compare_checkpoints(paths[0], paths[1], bound).arrays[0].differing for bound in (0.1, 0.3, 0.5)] == [
        2,
        1,
        0,
    ]


@pytest.mark.parametrize("values", [(1.0, math.nan), (math.inf, 1.0), (math.inf, -math.inf)])
def test_no_tolerance_covers_what_is_not_finite(values: tuple[float, float], tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.safetensors", "other.safetensors")]
    for path, value in zip(paths, values, strict=True):
        write_safetensors(path, {"a": torch.tensor([0.0, value])})
    done = run("compare", *paths, "--tolerance", 1e30)
    done.refused("differ by more than 1e+30: a in 1 of 2 values, most at [1]", status=1)
    assert "not finite" in done.stdout


def test_arrays_that_one_lacks_and_other_shapes_fail(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in "abcd"]
    for path, tensors in zip(
        paths,
        (
            {"x": torch.zeros(2, 3), "y": torch.zeros(1)},
            {"x": torch.zeros(2, 3)},
            {"x": torch.zeros(3, 2)},
            {"x": torch.zeros(2, 3).bfloat16()},
        ),
        strict=True,
    ):
        write_safetensors(path, tensors)
    a, b, c, d = paths
    run("compare", a, b).refused(f"1 arrays are only in {a}, first y", status=1)
    for other, kind in ((c, "float32 3x2"), (d, "bfloat16 2x3")):
        run("compare", b, other).refused(f"x is float32 2x3 in one and {kind} in the other", status=1)
    with pytest.raises(InputError, match="have no array of the same name"):
        write_safetensors(c, {"other": torch.zeros(1)})
        compare_checkpoints(b, c)
    for tolerance in ("-1", "nan", "inf"):
        run("compare", a, b, "--tolerance", tolerance).refused("--tolerance")
