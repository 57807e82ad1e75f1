"""One table of the checkpoint's arrays: both names, both layouts (docs/facts/reference.md f.1, f.2).

A layout is a string of axes; axes in parentheses are merged into one, the first being the slowest:

    L layer  C query, key, value  N attention head  D head dimension  H hidden  F feed-forward  V vocabulary
    P position (the model keeps the first 2,048 rows of PAXML's table)

So ``L C H N D -> L (N C D) H`` is the attention input weight: PAXML stores [96, 3, 12288, 96, 128], Megatron
[96, 36864, 12288] with query, key and value interleaved per head. LayerNorm gains are stored minus one on both sides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

KEPT_POSITIONS = 2048
BLOCK = "transformer.repeat.sub.x_layers_0."
LAYERS = "encoder.layers."
"""How Megatron's names of stacked arrays begin."""


@dataclass(frozen=True)
class Array:
    """One parameter array; all layers of a stacked one lie in the same array."""

    megatron: str
    """Name after the group's prefix ``language_model.``."""
    paxml: str
    """Name after ``params.lm.``."""
    paxml_axes: str
    megatron_axes: str

    @property
    def stacked(self) -> bool:
        return self.paxml_axes.startswith("L")

    def paxml_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[axis] for axis in self.paxml_axes.split())

    def megatron_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Shape with merged axes; position rows beyond those kept are gone."""
        shape = []
        for axes in self.megatron_groups():
            size = 1
            for axis in axes:
                size *= min(sizes[axis], KEPT_POSITIONS) if axis == "P" else sizes[axis]
            shape.append(size)
        return tuple(shape)

    def kept_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes without the position rows that the model does not use."""
        return {**sizes, "P": min(sizes["P"], KEPT_POSITIONS)}

    def paxml_groups(self) -> tuple[tuple[str, ...], ...]:
        """No PAXML axis is merged of several."""
        return tuple((axis,) for axis in self.paxml_axes.split())

    def megatron_groups(self) -> tuple[tuple[str, ...], ...]:
        """The PAXML axes that make up each Megatron axis: 'L (N C D) H' -> ((L), (N, C, D), (H))."""
        groups: list[list[str]] = []
        merging = False
        for word in self.megatron_axes.split():
            if merging:
                groups[-1].append(word.strip("()"))
            else:
                groups.append([word.strip("()")])
            merging = (merging or word.startswith("(")) and not word.endswith(")")
        return tuple(map(tuple, groups))

    def permutation(self) -> list[int]:
        """PAXML axis at each place once the axes stand in Megatron's order, before merging."""
        source = self.paxml_axes.split()
        return [source.index(axis) for group in self.megatron_groups() for axis in group]


ARRAYS = (
    Array("embedding.word_embeddings.weight", "softmax.logits_ffn.linear.w", "H V", "V H"),
    Array("embedding.position_embeddings.weight", "position_emb.emb_var", "P H", "P H"),
    Array("encoder.final_layernorm.weight", "final_ln.scale", "H", "H"),
    Array("encoder.final_layernorm.bias", "final_ln.bias", "H", "H"),
    Array("encoder.layers.input_layernorm.weight", BLOCK + "layer_norm.scale", "L H", "L H"),
    Array("encoder.layers.input_layernorm.bias", BLOCK + "layer_norm.bias", "L H", "L H"),
    Array("encoder.layers.post_attention_layernorm.weight", BLOCK + "ff_layer.layer_norm.scale", "L H", "L H"),
    Array("encoder.layers.post_attention_layernorm.bias", BLOCK + "ff_layer.layer_norm.bias", "L H", "L H"),
    Array(
        "encoder.layers.self_attention.query_key_value.weight",
        BLOCK + "self_attention.combined_qkv.w",
        "L C H N D",
        "L (N C D) H",
    ),
    Array(
        "encoder.layers.self_attention.query_key_value.bias",
        BLOCK + "self_attention.combined_qkv.b",
        "L C N D",
        "L (N C D)",
    ),
    Array("encoder.layers.self_attention.dense.weight", BLOCK + "self_attention.post.w", "L H N D", "L H (N D)"),
    Array("encoder.layers.self_attention.dense.bias", BLOCK + "self_attention.post.b", "L H", "L H"),
    Array("encoder.layers.mlp.dense_h_to_4h.weight", BLOCK + "ff_layer.ffn_layer1.linear.w", "L H F", "L F H"),
    Array("encoder.layers.mlp.dense_h_to_4h.bias", BLOCK + "ff_layer.ffn_layer1.bias.b", "L F", "L F"),
    Array("encoder.layers.mlp.dense_4h_to_h.weight", BLOCK + "ff_layer.ffn_layer2.linear.w", "L F H", "L H F"),
    Array("encoder.layers.mlp.dense_4h_to_h.bias", BLOCK + "ff_layer.ffn_layer2.bias.b", "L H", "L H"),
)


@dataclass(frozen=True)
class ArrayGroup:
    """What is stored of every array: the weight itself or one of Adam's moments."""

    megatron: tuple[str, ...]
    """Prefixes of the arrays written from it; the weights are written twice in a BF16 checkpoint."""
    paxml: str
    """Prefix of arrays that are not stacked."""
    paxml_stacked: str
    """Prefix of stacked arrays; {repeats} is the number of layers, always 96 in the benchmark's checkpoint."""

    def paxml_prefix(self, array: Array, repeats: int) -> str:
        return (self.paxml_stacked.format(repeats=repeats) if array.stacked else self.paxml) + "params.lm."


WEIGHTS = "language_model."
MASTER_WEIGHTS = "optimizer.state.fp32_from_fp16.language_model."
EXP_AVG = "optimizer.state.exp_avg.language_model."
EXP_AVG_SQ = "optimizer.state.exp_avg_sq.language_model."
REPEATS = 96


def groups(dtype: str) -> tuple[ArrayGroup, ...]:
    """The groups of an ``fp32`` checkpoint, or of a ``bf16`` one, which adds the FP32 master weights."""
    weights = (WEIGHTS, MASTER_WEIGHTS) if dtype == "bf16" else (WEIGHTS,)
    return (
        ArrayGroup(weights, "mdl_vars.", "mdl_vars."),
        ArrayGroup((EXP_AVG,), "opt_states_0.no_prefix_2.m.", "opt_states_0.p#{repeats}#i-1_2.m."),
        ArrayGroup((EXP_AVG_SQ,), "opt_states_0.no_prefix_2.v.", "opt_states_0.p#{repeats}#i-1_2.v."),
    )


def array_dtype(prefix: str, dtype: str) -> str:
    """``bfloat16`` for the weights of a ``bf16`` checkpoint, else ``float32``."""
    return "bfloat16" if dtype == "bf16" and prefix == WEIGHTS else "float32"


def chunk_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The reference converter's rule (docs/facts/reference.md f.1): eighths of the first two axes, or one layer and
    eighths of the next two; an axis that 8 does not divide stays whole."""
    chunks = list(shape)
    first_divided = 0
    if shape[0] <= 200:
        chunks[0], first_divided = 1, 1
    for axis in range(first_divided, min(first_divided + 2, len(shape))):
        if chunks[axis] % 8 == 0:
            chunks[axis] //= 8
    return tuple(chunks)
