"""What a folder holds is seen from its files; what is no checkpoint is refused in a line."""

from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.formats.array_table import EXP_AVG, MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.zarr_arrays import create_array
from checkpoint_convert.inspection.checkpoint_files import MEGATRON, PAXML, ZARR, as_megatron, open_checkpoint
from stage.errors import InputError
from tests.checkpoint_convert.tiny import read
from tests.support import assert_refused, command


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    assert_refused(command("checkpoint_convert", "inspect", tmp_path / "none"), "no such folder or .safetensors file")
    assert_refused(command("checkpoint_convert", "inspect", tmp_path), "holds no zarr arrays")


def test_formats_of_zarr_folders(paxml: Path, megatron: dict[str, Path], tmp_path: Path) -> None:
    create_array(tmp_path / "x", (2,), "float32", (2,))
    found = [open_checkpoint(path).format for path in (paxml, megatron["fp32"], tmp_path)]
    assert found == [PAXML, MEGATRON, ZARR]


def test_any_box_of_a_merged_axis_is_megatrons(paxml: Path, megatron: dict[str, Path]) -> None:
    """The attention input's axis is merged of heads, query, key or value, and dimensions."""
    like = open_checkpoint(megatron["bf16"])
    view = as_megatron(open_checkpoint(paxml), like)
    assert view.arrays.keys() == like.arrays.keys()
    name = "encoder.layers.self_attention.query_key_value.weight"
    stored = "transformer.repeat.sub.x_layers_0.self_attention.combined_qkv.w"
    weights = read(paxml / f"mdl_vars.params.lm.{stored}").transpose(0, 3, 1, 4, 2).reshape(2, 108, 36)
    moments = read(paxml / f"opt_states_0.p#96#i-1_2.m.params.lm.{stored}").transpose(0, 3, 1, 4, 2).reshape(2, 108, 36)
    boxes: list[Box] = [
        (slice(0, 2), slice(0, 108), slice(0, 36)),
        (slice(1, 2), slice(5, 31), slice(3, 36)),
        (slice(0, 1), slice(27, 54), slice(7, 8)),
    ]
    for box in boxes:
        np.testing.assert_array_equal(view.arrays[MASTER_WEIGHTS + name].read(box), weights[box])
        np.testing.assert_array_equal(view.arrays[EXP_AVG + name].read(box), moments[box])
        rounded = view.arrays[WEIGHTS + name].read(box)
        np.testing.assert_array_equal(rounded, weights[box].astype(rounded.dtype))
    positions = view.arrays[f"{MASTER_WEIGHTS}embedding.position_embeddings.weight"]
    assert positions.shape == (2048, 36)  # of 2060


def test_array_with_other_axes_is_refused(paxml: Path, megatron: dict[str, Path], tmp_path: Path) -> None:
    create_array(tmp_path / "mdl_vars.params.lm.final_ln.scale", (2, 3), "float32", (2, 3))
    with pytest.raises(InputError, match=r"final_ln\.scale: shape \[2, 3\], expected the axes H"):
        as_megatron(open_checkpoint(tmp_path), open_checkpoint(megatron["fp32"]))
