"""One table for each model of its arrays: names and layouts (docs/facts/reference.md f.1, f.2).

A layout is a string of axes; axes in parentheses are merged into one, the first being the slowest:

    L layer  C query, key, value  N attention head  D head dimension  H hidden  F feed-forward  V vocabulary
    P position (the model keeps the first 2,048 rows of PAXML's table)  K head of keys and values

So the attention input weight is ``L C H N D`` in PAXML, [96, 3, 12288, 96, 128], and ``L (N C D) H`` in Megatron,
[96, 36864, 12288], with query, key and value interleaved per head. LayerNorm gains are stored minus one on both sides.

Only GPT-3 was published as PAXML and Megatron zarr. Another model's arrays are another table: those of its runs.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

KEPT_POSITIONS = 2048
LAYERS = ".layers."
"""Part of Megatron's names of stacked arrays, and of no others; a layer's number follows it in parameters' names."""
X = "transformer.repeat.sub.x_layers_0."
"""Prefix of PAXML's names of stacked arrays."""

# Megatron's name, after the group's prefix "language_model."    PAXML's name, after "params.lm."
GPT3 = f"""
embedding.word_embeddings.weight                      V H          softmax.logits_ffn.linear.w       H V
embedding.position_embeddings.weight                  P H          position_emb.emb_var              P H
encoder.final_layernorm.weight                        H            final_ln.scale                    H
encoder.final_layernorm.bias                          H            final_ln.bias                     H
encoder.layers.input_layernorm.weight                 L H          {X}layer_norm.scale               L H
encoder.layers.input_layernorm.bias                   L H          {X}layer_norm.bias                L H
encoder.layers.post_attention_layernorm.weight        L H          {X}ff_layer.layer_norm.scale      L H
encoder.layers.post_attention_layernorm.bias          L H          {X}ff_layer.layer_norm.bias       L H
encoder.layers.self_attention.query_key_value.weight  L (N C D) H  {X}self_attention.combined_qkv.w  L C H N D
encoder.layers.self_attention.query_key_value.bias    L (N C D)    {X}self_attention.combined_qkv.b  L C N D
encoder.layers.self_attention.dense.weight            L H (N D)    {X}self_attention.post.w          L H N D
encoder.layers.self_attention.dense.bias              L H          {X}self_attention.post.b          L H
encoder.layers.mlp.dense_h_to_4h.weight               L F H        {X}ff_layer.ffn_layer1.linear.w   L H F
encoder.layers.mlp.dense_h_to_4h.bias                 L F          {X}ff_layer.ffn_layer1.bias.b     L F
encoder.layers.mlp.dense_4h_to_h.weight               L H F        {X}ff_layer.ffn_layer2.linear.w   L F H
encoder.layers.mlp.dense_4h_to_h.bias                 L H          {X}ff_layer.ffn_layer2.bias.b     L H
"""

# The names of a run's parameters, which are Hugging Face's, without the layers' numbers.
LLAMA31 = """
model.embed_tokens.weight                     V H
model.norm.weight                             H
lm_head.weight                                V H
model.layers.input_layernorm.weight           L H
model.layers.self_attn.q_proj.weight          L (N D) H
model.layers.self_attn.k_proj.weight          L (K D) H
model.layers.self_attn.v_proj.weight          L (K D) H
model.layers.self_attn.o_proj.weight          L H (N D)
model.layers.post_attention_layernorm.weight  L H
model.layers.mlp.gate_proj.weight             L F H
model.layers.mlp.up_proj.weight               L F H
model.layers.mlp.down_proj.weight             L H F
"""


def table_rows(table: str) -> list[list[str]]:
    """Return the cells of a table of text, whose columns are two spaces or more apart."""
    return [re.split("  +", line) for line in table.strip().splitlines()]


def axis_groups(layout: str) -> tuple[tuple[str, ...], ...]:
    """Return the axes that make up each axis of a layout: 'L (N C D) H' -> ((L), (N, C, D), (H))."""
    return tuple(tuple(group.strip("()").split()) for group in re.findall(r"\([^)]*\)|\S+", layout))


@dataclass(frozen=True)
class Array:
    """One parameter array; all layers of a stacked one lie in the same array."""

    megatron: str
    """Name after the group's prefix ``language_model.``, and of a run's parameters."""
    megatron_axes: str
    paxml: str = ""
    """Name after ``params.lm.``."""
    paxml_axes: str = ""

    @property
    def stacked(self) -> bool:
        return LAYERS in self.megatron

    def paxml_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[axis] for axis in self.paxml_axes.split())

    def megatron_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with merged axes, without the position rows that are not kept."""
        axis_sizes = self.kept_sizes(sizes)
        return tuple(math.prod(axis_sizes[axis] for axis in axes) for axes in axis_groups(self.megatron_axes))

    def kept_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes without the position rows that the model does not use."""
        return {**sizes, "P": min(sizes.get("P", 0), KEPT_POSITIONS)}

    def parameter(self, layer: int) -> str:
        """Return the parameter's name in the model: 'encoder.layers.mlp.x', 7 -> 'encoder.layers.7.mlp.x'.

        A parameter that is not stacked has the array's name.
        """
        return self.megatron.replace(LAYERS, f"{LAYERS}{layer}.", 1)

    def permutation(self) -> list[int]:
        """Return the PAXML axis at each place once the axes stand in Megatron's order, before merging."""
        source = self.paxml_axes.split()
        return [source.index(axis) for group in axis_groups(self.megatron_axes) for axis in group]


REPEATS = 96
"""Number of layers in the names of stacked moments, whatever the model's number is."""
ARRAYS = tuple(Array(*row) for row in table_rows(GPT3))
MODELS = {"gpt3": ARRAYS, "llama31": tuple(Array(*row) for row in table_rows(LLAMA31))}
"""The arrays of each architecture."""


def array_of(name: str) -> tuple[str, int | None]:
    """Return the array that holds a parameter, and its layer there: all layers lie in one array.

    'encoder.layers.7.mlp.x' -> ('encoder.layers.mlp.x', 7)
    """
    prefix, _, suffix = name.partition(LAYERS)
    layer, _, parameter = suffix.partition(".")
    return (f"{prefix}{LAYERS}{parameter}", int(layer)) if layer.isascii() and layer.isdigit() else (name, None)


@dataclass(frozen=True)
class ArrayGroup:
    """The arrays of one kind: the weights themselves, or one of Adam's moments."""

    megatron: tuple[str, ...]
    """Prefixes of the arrays written from the group; a BF16 checkpoint has the weights twice."""
    paxml: str
    """Prefix of arrays that are not stacked."""
    paxml_stacked: str
    """Prefix of stacked arrays; {repeats} is the number of layers, always 96 in the benchmark's checkpoint."""

    def paxml_name(self, array: Array, repeats: int = REPEATS) -> str:
        prefix = self.paxml_stacked.format(repeats=repeats) if array.stacked else self.paxml
        return f"{prefix}params.lm.{array.paxml}"


WEIGHTS = "language_model."
MASTER_WEIGHTS = "optimizer.state.fp32_from_fp16.language_model."
EXP_AVG = "optimizer.state.exp_avg.language_model."
EXP_AVG_SQ = "optimizer.state.exp_avg_sq.language_model."


def groups(dtype: str) -> tuple[ArrayGroup, ...]:
    """Return the groups of an ``fp32`` checkpoint, or of a ``bf16`` one, which adds the FP32 master weights."""
    weights = (WEIGHTS, MASTER_WEIGHTS) if dtype == "bf16" else (WEIGHTS,)
    return (
        ArrayGroup(weights, "mdl_vars.", "mdl_vars."),
        ArrayGroup((EXP_AVG,), "opt_states_0.no_prefix_2.m.", "opt_states_0.p#{repeats}#i-1_2.m."),
        ArrayGroup((EXP_AVG_SQ,), "opt_states_0.no_prefix_2.v.", "opt_states_0.p#{repeats}#i-1_2.v."),
    )


def array_dtype(prefix: str, dtype: str) -> str:
    """Return ``bfloat16`` for the weights of a ``bf16`` checkpoint, else ``float32``."""
    return "bfloat16" if dtype == "bf16" and prefix == WEIGHTS else "float32"


def chunk_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the chunks of the reference's converter (docs/facts/reference.md f.1).

    It takes eighths of the first two axes, or one layer and eighths of the next two; an axis that 8 does not divide
    stays whole.
    """
    chunks = list(shape)
    first_divided = 0
    if shape[0] <= 200:
        chunks[0], first_divided = 1, 1
    for axis in range(first_divided, min(first_divided + 2, len(shape))):
        if chunks[axis] % 8 == 0:
            chunks[axis] //= 8
    return tuple(chunks)
