"""The architectures as data: their plain page, passes, parameter names and cut axes.

A new architecture is a class of sizes (like gpt3_config.py), a plain page (gpt3.py), a file of passes
(passes/gpt3_block.py) and a row here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from model.decoder_sizes import DecoderSizes
from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config
from model.llama31 import Llama31
from model.llama31_config import Llama31Config
from model.passes.attention import AttentionLayout
from model.passes.block_pass import BlockParts, Norm
from model.passes.gpt3_block import NormPass, gpt3_attention, gpt3_block
from model.passes.linear.linear_pass import LinearPass
from model.passes.llama_block import RmsNormPass, llama31_attention, llama31_block
from model.passes.tensor_group import TensorGroup
from model.passes.whole_parameter import WholeParameter


@dataclass(frozen=True)
class Architecture:
    """One kind of model. All names are names of parameters in its plain page."""

    plain: Callable[[Any], nn.Module]
    """The model of the plain page, for given sizes."""
    block: Callable[[Mapping[str, WholeParameter], TensorGroup, Any, int, Callable[..., LinearPass]], BlockParts]
    """The parts of a block; arguments: its parameters by their names in the block, the tensor-parallel ranks, the
    sizes, the samples of a micro-batch, and a function that makes its linear layers
    (passes/linear/linear_formats.py)."""
    attention: Callable[[Any, int, int], AttentionLayout]
    """Attention of a block; arguments: the sizes, the number of tensor-parallel ranks, the samples of a micro-batch."""
    norm: Callable[[Mapping[str, WholeParameter], str], Norm]
    """A norm; arguments: the parameters, its name."""
    cut: Mapping[str, int]
    """Axis along which tensor-parallel ranks share a parameter, by the last words of its name (docs/facts/reference.md
    d): the vocabulary's rows, heads, feed-forward columns. Each rank has a copy of all other parameters."""
    layers: str
    """Beginning of the names of the blocks' parameters; the layer's number follows."""
    words: str
    """Name of the embedding's table."""
    positions: str | None
    """Name of the position embedding's table; None for a rotary embedding."""
    final_norm: str
    """Name of the norm before the output."""
    final_norm_parameters: tuple[str, ...]
    output: str
    """Name of the output's table: the words' table where both are tied."""
    vectors_begin_at: float
    """Initial value of gains and biases."""
    added: tuple[str, ...]
    """Last words of the names of matrices whose products are added to the residual stream."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the embedding's parameters, which the first model chunk has."""
        return (self.words,) if self.positions is None else (self.words, self.positions)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the output's parameters, which the last model chunk has."""
        return (*(f"{self.final_norm}.{name}" for name in self.final_norm_parameters), self.output)

    @property
    def tied(self) -> str | None:
        """Name of the table that embedding and output share; None if each has its own."""
        return self.words if self.words == self.output else None


ARCHITECTURES: Mapping[type[DecoderSizes], Architecture] = {
    GPT3Config: Architecture(
        plain=GPT3,
        block=gpt3_block,
        attention=gpt3_attention,
        norm=NormPass,
        cut={
            "word_embeddings.weight": 0,
            "query_key_value.weight": 0,
            "query_key_value.bias": 0,
            "dense.weight": 1,
            "dense_h_to_4h.weight": 0,
            "dense_h_to_4h.bias": 0,
            "dense_4h_to_h.weight": 1,
        },
        layers="encoder.layers.",
        words="embedding.word_embeddings.weight",
        positions="embedding.position_embeddings.weight",
        final_norm="encoder.final_layernorm",
        final_norm_parameters=("weight", "bias"),
        output="embedding.word_embeddings.weight",
        vectors_begin_at=0.0,
        added=("self_attention.dense.weight", "mlp.dense_4h_to_h.weight"),
    ),
    Llama31Config: Architecture(
        plain=Llama31,
        block=llama31_block,
        attention=llama31_attention,
        norm=RmsNormPass,
        cut={
            "embed_tokens.weight": 0,
            "q_proj.weight": 0,
            "k_proj.weight": 0,
            "v_proj.weight": 0,
            "o_proj.weight": 1,
            "gate_proj.weight": 0,
            "up_proj.weight": 0,
            "down_proj.weight": 1,
            "lm_head.weight": 0,
        },
        layers="model.layers.",
        words="model.embed_tokens.weight",
        positions=None,
        final_norm="model.norm",
        final_norm_parameters=("weight",),
        output="lm_head.weight",
        vectors_begin_at=1.0,
        added=("self_attn.o_proj.weight", "mlp.down_proj.weight"),
    ),
}
"""The architectures by the class of their models' sizes."""


def architecture_of(sizes: DecoderSizes) -> Architecture:
    return ARCHITECTURES[type(sizes)]
