"""A PAXML checkpoint seen as Megatron's: any box has the values that the conversion writes."""

from pathlib import Path

import numpy as np
import pytest

from checkpoint_convert.formats.array_table import ARRAYS, MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.boxes import Box, whole_box
from checkpoint_convert.formats.checkpoint_files import MEGATRON, PAXML, ZARR, open_checkpoint
from checkpoint_convert.formats.zarr_arrays import create_array
from checkpoint_convert.inspection.megatron_view import as_megatron
from stage.errors import InputError
from tests.checkpoint_convert.tiny import AXES, tiny_values, write_megatron, write_paxml

QKV = "encoder.layers.self_attention.query_key_value.weight"


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
            np.testing.assert_array_equal(view.arrays[prefix + QKV].read(box), like.arrays[prefix + QKV].read(box))
    assert view.arrays[f"{WEIGHTS}embedding.position_embeddings.weight"].shape == (2048, 36)


def test_formats_of_folders(megatron: dict[str, Path], tmp_path: Path) -> None:
    for folder, name in (("p", f"mdl_vars.params.lm.{ARRAYS[0].paxml}"), ("z", "x")):
        create_array(tmp_path / folder / name, (2,), "float32", (2,))
    found = [open_checkpoint(path) for path in (tmp_path / "p", megatron["fp32"], megatron["bf16"], tmp_path / "z")]
    assert [one.format for one in found] == [PAXML, MEGATRON, MEGATRON, ZARR]
    assert [one.has_master_weights for one in found] == [False, False, True, False]


def test_array_with_other_axes_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    create_array(tmp_path / "mdl_vars.params.lm.final_ln.scale", (2, 3), "float32", (2, 3))
    with pytest.raises(InputError, match=r"final_ln\.scale: shape \[2, 3\], expected the axes H"):
        as_megatron(open_checkpoint(tmp_path), open_checkpoint(megatron["fp32"]))
