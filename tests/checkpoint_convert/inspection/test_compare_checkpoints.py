"""Two checkpoints side by side: a conversion proves itself, and any difference is found, counted and named."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.formats.paxml_counters import write_counters
from checkpoint_convert.inspection.compare_checkpoints import compare_checkpoints
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp, write_safetensors
from tests.checkpoint_convert.tiny import SHARDED, MakePaxml, opened
from tests.support import assert_refused, command

QKV = "language_model.encoder.layers.self_attention.query_key_value.weight"


@pytest.fixture(scope="module")
def uncompressed(make_once: MakePaxml) -> Path:
    return make_once(SHARDED)


def change(folder: Path, array: str, place: tuple[int, ...], by: float) -> tuple[float, float]:
    store = opened(folder / array)
    before = store[place].read().result()
    after = store.dtype.numpy_dtype.type(float(before) + by)
    store[place].write(after).result()
    return float(before), float(after)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_conversion_is_the_source_value_by_value(dtype: str, paxml: Path, uncompressed: Path, tmp_path: Path) -> None:
    output = tmp_path / "m"
    paxml_to_megatron(paxml, output, dtype=dtype, workers=1, memory_limit=1 << 30)
    for one, other in ((paxml, output), (output, paxml), (uncompressed, output)):
        comparison = compare_checkpoints(one, other)
        assert comparison.only_in == ([], [])
        assert len(comparison.arrays) == (64 if dtype == "bf16" else 48)
        assert all(array.same and array.place is None for array in comparison.arrays)
    done = command("checkpoint_convert", "compare", paxml, output)
    assert done.returncode == 0, done.stderr
    assert "arrays that both have are the same in every bit" in done.stdout


def test_counters_are_no_difference_but_adams_step_is(tmp_path: Path) -> None:
    paxml, output = tmp_path / "p", tmp_path / "m"
    sizes = ModelSizes(layers=2, hidden=16, heads=2, vocab=64, positions=16)
    write_random_paxml(paxml, seed=1, sizes=sizes)
    paxml_to_megatron(paxml, output, dtype="bf16", workers=1, memory_limit=1 << 30)
    done = command("checkpoint_convert", "compare", paxml, output)
    assert done.returncode == 0, done.stderr
    assert "Adam's step: 4000 and 4000" in done.stdout
    without = tmp_path / "without"
    shutil.copytree(paxml, without)
    for path in [*without.glob("*.count"), without / "step"]:
        shutil.rmtree(path)
    done = command("checkpoint_convert", "compare", without, paxml)
    assert done.returncode == 0, done.stderr
    assert f"only in {paxml}, and no difference: 9 counters" in done.stdout
    assert command("checkpoint_convert", "compare", output, without).returncode == 0
    write_counters(without, 3999, 2)
    assert_refused(
        command("checkpoint_convert", "compare", without, output), "Adam's step is 3999 in one and 4000", status=1
    )


@pytest.mark.slow
def test_changed_value_is_named_in_megatrons_places(paxml: Path, tmp_path: Path) -> None:
    output = tmp_path / "m"
    paxml_to_megatron(paxml, output, dtype="bf16", workers=1, memory_limit=1 << 30)
    change(output, "language_model.encoder.final_layernorm.bias", (5,), 0.25)
    change(output, QKV, (1, 40, 3), 0.5)
    change(output, QKV, (0, 0, 0), 0.25)
    done = command("checkpoint_convert", "compare", paxml, output)
    assert_refused(done, f"{QKV} in 2 of 7,776 values, most at [1, 40, 3]", status=1)
    assert "62 of 64 arrays that both have are the same in every bit" in done.stdout
    found = json.loads(command("checkpoint_convert", "compare", paxml, output, "--json").stdout)["arrays"]
    assert [array["name"] for array in found[:2]] == [QKV, "language_model.encoder.final_layernorm.bias"]
    assert (found[0]["differing"], found[0]["place"]) == (2, [1, 40, 3])
    assert found[0]["largest_difference"] == pytest.approx(0.5, rel=0.01)
    assert compare_checkpoints(paxml, output, tolerance=1.0).arrays[0].same


@pytest.mark.slow
def test_paxml_checkpoints_differ_in_paxmls_places(uncompressed: Path, paxml: Path) -> None:
    assert all(array.same for array in compare_checkpoints(uncompressed, paxml).arrays)


@pytest.mark.parametrize("write", [write_dcp, write_safetensors])
def test_every_bit_counts_unless_there_is_a_tolerance(write: Any, tmp_path: Path) -> None:
    one = torch.tensor([[1.0, 2.0, math.nan], [0.0, 5.0, -8.0]])
    other = torch.tensor([[1.0, 2.5, math.nan], [-0.0, 5.25, -8.0]])
    paths = [tmp_path / name for name in ("one.safetensors", "other.safetensors")]
    for path, tensor in zip(paths, (one, other), strict=True):
        write(path, {"a": tensor})
    (array,) = compare_checkpoints(paths[0], paths[1]).arrays
    assert (array.differing, array.largest_difference, array.place) == (3, 0.5, (0, 1))
    assert (array.relative_difference, array.values) == (0.5 / 8, ("2.0", "2.5"))
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
    done = command("checkpoint_convert", "compare", *paths, "--tolerance", 1e30)
    assert_refused(done, "differ by more than 1e+30: a in 1 of 2 values, most at [1]", status=1)
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
    assert_refused(command("checkpoint_convert", "compare", a, b), f"1 arrays are only in {a}, first y", status=1)
    for other, kind in ((c, "float32 3x2"), (d, "bfloat16 2x3")):
        done = command("checkpoint_convert", "compare", b, other)
        assert_refused(done, f"x is float32 2x3 in one and {kind} in the other", status=1)
    with pytest.raises(InputError, match="have no array of the same name"):
        write_safetensors(c, {"other": torch.zeros(1)})
        compare_checkpoints(b, c)


@pytest.mark.parametrize("tolerance", ["-1", "nan", "inf"])
def test_tolerances_that_mean_nothing_are_refused(tolerance: str, tmp_path: Path) -> None:
    done = command("checkpoint_convert", "compare", tmp_path, tmp_path, "--tolerance", tolerance)
    assert_refused(done, "--tolerance")
