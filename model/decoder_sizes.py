"""Sizes that every model has, without PyTorch, so that planning does not wait for its import."""

from dataclasses import dataclass
from typing import Literal

from stage.errors import InputError

Recompute = Literal["none", "selective", "full"]
"""Values that a block computes again in its backward pass (passes/block_pass.py)."""
CopyEngines = Literal["none", "gathers", "all"]
"""Messages of tensor parallelism that copy engines carry (passes/copy_engines.py)."""


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of a model. A model's own class adds its fields, and counts its weights. Raises InputError for sizes that
    do not fit together."""

    num_layers: int
    """Transformer blocks."""
    hidden_size: int
    """Width of the residual stream, H."""
    num_attention_heads: int
    """N; must divide the hidden size."""
    seq_length: int
    """Tokens per sample, S."""
    vocab_size: int
    """Pieces of the tokenizer."""
    padded_vocab_size: int
    """Rows of the word embedding, V: the next multiple of 1,024 in every topology, as in the checkpoint. The reference
    pads to 128 x tensor parallel size, so that its loss depends on the topology."""  # docs/facts/reference.md j.2

    def __post_init__(self) -> None:
        for name in ("num_layers", "hidden_size", "num_attention_heads", "seq_length"):
            if getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise InputError(f"{name} {getattr(self, name)}: expected at least 1; change --{option}")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if self.padded_vocab_size < self.vocab_size:
            raise InputError(f"padded_vocab_size {self.padded_vocab_size} is less than vocab_size {self.vocab_size}")

    @property
    def head_size(self) -> int:
        """Width of an attention head, D."""
        return self.hidden_size // self.num_attention_heads

    @property
    def cut_by_tensor_parallelism(self) -> tuple[str, ...]:
        """Fields that the number of tensor-parallel devices must divide."""
        return ("num_attention_heads", "seq_length", "padded_vocab_size")

    @property
    def layer_matrix_weights(self) -> int:
        """Weights of a block's matrices: each takes part in one product per token."""
        raise NotImplementedError

    @property
    def num_parameters(self) -> int:
        """Parameters, padding rows of the vocabulary included."""
        raise NotImplementedError
