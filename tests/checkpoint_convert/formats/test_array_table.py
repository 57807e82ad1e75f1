"""The table of arrays: the benchmark's shapes, and the reference's rule for chunks."""

import numpy as np
import torch

from checkpoint_convert.formats.array_table import (
    ARRAYS,
    MASTER_WEIGHTS,
    WEIGHTS,
    array_dtype,
    array_of,
    chunk_shape,
    groups,
)
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
    assert shapes["self_attention.dense.weight"] == (96, 12288, 12288)
    assert shapes["mlp.dense_4h_to_h.weight"] == (96, 12288, 49152)
    assert shapes["embedding.position_embeddings.weight"] == (2048, 12288)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 174_615_846_912


def test_names_that_a_checkpoint_has() -> None:
    """As the reference's converter maps them (docs/facts/reference.md f.1)."""
    qkv = next(array for array in ARRAYS if array.paxml.endswith("combined_qkv.w"))
    weights, exp_avg, _ = groups("bf16")
    assert weights.megatron == (WEIGHTS, MASTER_WEIGHTS)
    assert weights.paxml_prefix(qkv, 96) == "mdl_vars.params.lm."
    assert exp_avg.paxml_prefix(qkv, 96) == "opt_states_0.p#96#i-1_2.m.params.lm."
    assert exp_avg.paxml_prefix(ARRAYS[0], 96) == "opt_states_0.no_prefix_2.m.params.lm."
    assert [array_dtype(prefix, "bf16") for prefix in weights.megatron] == ["bfloat16", "float32"]
    assert array_dtype(WEIGHTS, "fp32") == "float32"
    assert qkv.megatron_groups() == (("L",), ("N", "C", "D"), ("H",))
    assert qkv.permutation() == [0, 3, 1, 4, 2]


def test_parameters_are_the_models() -> None:
    with torch.device("meta"):
        expected = {name: tuple(value.shape) for name, value in GPT3(CONFIG).named_parameters()}
    assert parameter_shapes(AXES) == expected
    assert array_of("encoder.layers.7.mlp.x") == ("encoder.layers.mlp.x", 7)
    assert array_of("encoder.final_layernorm.bias") == ("encoder.final_layernorm.bias", None)
