"""The table of arrays: the benchmark's shapes and names, and the sizes that are read off the arrays of a checkpoint."""

import numpy as np
import pytest
import torch

from checkpoint_convert.formats.array_table import (
    ARRAYS,
    MASTER_WEIGHTS,
    WEIGHTS,
    array_dtype,
    array_of,
    axis_groups,
    chunk_shape,
    groups,
)
from checkpoint_convert.formats.axis_sizes import megatron_axis_sizes, paxml_axis_sizes
from foundation.errors import InputError
from model.gpt3 import GPT3
from tests.checkpoint_convert.tiny import AXES, CONFIG, parameter_shapes


def test_chunks_follow_the_references_rule() -> None:
    assert chunk_shape((51200, 12288)) == (6400, 1536)
    assert chunk_shape((96, 36864, 12288)) == (1, 4608, 1536)
    assert chunk_shape((12288,)) == (1536,)
    assert chunk_shape((200,)) == (1,)
    assert chunk_shape((1002, 200)) == (1002, 25)


def test_table_has_the_benchmarks_shapes() -> None:
    sizes = {"L": 96, "C": 3, "N": 96, "D": 128, "H": 12288, "F": 49152, "V": 51200, "P": 16384}
    shapes = {array.megatron.removeprefix("encoder.layers."): array.megatron_shape(sizes) for array in ARRAYS}
    assert shapes["self_attention.query_key_value.weight"] == (96, 36864, 12288)
    assert shapes["mlp.dense_4h_to_h.weight"] == (96, 12288, 49152)
    assert shapes["embedding.position_embeddings.weight"] == (2048, 12288)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 174_615_846_912


def test_names_that_a_checkpoint_has() -> None:
    """As the reference's converter maps them (docs/facts/reference.md f.1)."""
    qkv = next(array for array in ARRAYS if array.paxml.endswith("combined_qkv.w"))
    weights, exp_avg, _ = groups("bf16")
    assert weights.megatron == (WEIGHTS, MASTER_WEIGHTS)
    assert exp_avg.paxml_name(qkv) == f"opt_states_0.p#96#i-1_2.m.params.lm.{qkv.paxml}"
    assert exp_avg.paxml_name(ARRAYS[0]) == "opt_states_0.no_prefix_2.m.params.lm.softmax.logits_ffn.linear.w"
    assert [array_dtype(prefix, "bf16") for prefix in weights.megatron] == ["bfloat16", "float32"]
    assert (axis_groups(qkv.megatron_axes), qkv.permutation()) == ((("L",), ("N", "C", "D"), ("H",)), [0, 3, 1, 4, 2])


def test_parameters_are_the_models() -> None:
    with torch.device("meta"):
        expected = {name: tuple(value.shape) for name, value in GPT3(CONFIG).named_parameters()}
    assert parameter_shapes(AXES) == expected
    assert array_of("encoder.layers.7.mlp.x") == ("encoder.layers.mlp.x", 7)
    assert array_of("encoder.final_layernorm.bias") == ("encoder.final_layernorm.bias", None)


PAXML = {array: array.paxml_shape({**AXES, "P": 2060}) for array in ARRAYS}
MEGATRON = {array: array.megatron_shape(AXES) for array in ARRAYS}


def test_sizes_of_every_layout() -> None:
    assert paxml_axis_sizes("x", PAXML) == {**AXES, "P": 2060}
    assert megatron_axis_sizes("x", MEGATRON, lambda hidden: {36: 4}[hidden]) == AXES
    other = {array: array.paxml_shape({**AXES, "C": 2}) for array in ARRAYS}
    with pytest.raises(InputError, match="are not those of a GPT-3 model"):
        paxml_axis_sizes("here", other)


@pytest.mark.parametrize(
    ("name", "shape", "complaint"),
    [
        ("final_ln.scale", (0,), r"final_ln\.scale with shape \[0\], expected the axes H, none of size 0"),
        ("final_ln.scale", (36, 1), "expected the axes H"),
        ("combined_qkv.w", (2, 3, 36, 9, 4), "axis [ND] is"),
        ("word_embeddings.weight", (208,), r"with shape \[208\], expected the axes V H"),
        ("query_key_value.bias", (2, 107), r"query_key_value\.bias with shape \[2, 107\], expected it \[2, 108\]"),
    ],
)
def test_shapes_that_cannot_be_are_named(name: str, shape: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(InputError, match=f"^here: .*{complaint}"):
        if any(array.paxml.endswith(name) for array in ARRAYS):
            paxml_axis_sizes("here", {a: shape if a.paxml.endswith(name) else found for a, found in PAXML.items()})
        changed = {a: shape if a.megatron.endswith(name) else found for a, found in MEGATRON.items()}
        megatron_axis_sizes("here", changed, lambda hidden: 4)
