"""Sizes of the axes: the same of every layout, and what contradicts itself is named."""

import pytest

from checkpoint_convert.formats.array_table import ARRAYS
from checkpoint_convert.formats.axis_sizes import megatron_axis_sizes, paxml_axis_sizes
from stage.errors import InputError
from tests.checkpoint_convert.tiny import AXES

PAXML = {array: array.paxml_shape({**AXES, "P": 2060}) for array in ARRAYS}
MEGATRON = {array: array.megatron_shape(AXES) for array in ARRAYS}


def test_sizes_of_every_layout() -> None:
    assert paxml_axis_sizes("x", PAXML) == {**AXES, "P": 2060}
    assert megatron_axis_sizes("x", MEGATRON, lambda hidden: {36: 4}[hidden]) == AXES


@pytest.mark.parametrize(
    ("name", "shape", "complaint"),
    [
        ("final_ln.scale", (0,), r"final_ln\.scale with shape \[0\], expected the axes H, none of size 0"),
        ("final_ln.scale", (35,), r"but axis H is 36 elsewhere|with shape \[36, 208\], but axis H is 35"),
        ("final_ln.scale", (36, 1), "expected the axes H"),
        ("combined_qkv.w", (2, 3, 36, 9, 4), "axis [ND] is"),
    ],
)
def test_paxml_shapes_that_cannot_be_are_named(name: str, shape: tuple[int, ...], complaint: str) -> None:
    changed = {array: shape if array.paxml.endswith(name) else found for array, found in PAXML.items()}
    with pytest.raises(InputError, match=f"^here: .*{complaint}"):
        paxml_axis_sizes("here", changed)


def test_a_model_of_another_kind_is_refused() -> None:
    other = {array: array.paxml_shape({**AXES, "C": 2}) for array in ARRAYS}
    with pytest.raises(InputError, match="are not those of a GPT-3 model"):
        paxml_axis_sizes("here", other)


@pytest.mark.parametrize(
    ("name", "shape", "complaint"),
    [
        ("word_embeddings.weight", (208,), r"with shape \[208\], expected the axes V H"),
        ("query_key_value.bias", (2, 107), r"query_key_value\.bias with shape \[2, 107\], expected it \[2, 108\]"),
        ("dense_h_to_4h.bias", (3, 144), "axis L is"),
    ],
)
def test_megatron_shapes_that_cannot_be_are_named(name: str, shape: tuple[int, ...], complaint: str) -> None:
    changed = {array: shape if array.megatron.endswith(name) else found for array, found in MEGATRON.items()}
    with pytest.raises(InputError, match=f"^here: .*{complaint}"):
        megatron_axis_sizes("here", changed, lambda hidden: 4)
