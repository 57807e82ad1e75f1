"""Sizes of the model, without PyTorch, so that planning does not wait for its import."""

from dataclasses import dataclass
from typing import Literal

from stage.errors import InputError

Recompute = Literal["none", "selective", "full"]
"""What a block computes again in its backward pass (passes/block_pass.py)."""


@dataclass(frozen=True)
class GPT3Config:
    """Sizes of the model. Raises InputError for sizes that do not fit together."""

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
    """Rows of the word embedding, V. The reference pads to 128 x tensor parallel size, so that its loss depends on
    the topology (docs/facts/reference.md j.2); here it is the next multiple of 1,024 everywhere, which is the
    checkpoint's."""
    max_position_embeddings: int = 2048
    """Rows of the position embedding; the checkpoint stores 2,048."""

    def __post_init__(self) -> None:
        for name in ("num_layers", "hidden_size", "num_attention_heads", "seq_length"):
            if getattr(self, name) < 1:
                option = name.replace("_", "-")
                raise InputError(f"{name} {getattr(self, name)}: expected at least 1; change --{option}")
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if self.seq_length > self.max_position_embeddings:
            raise InputError(
                f"seq_length {self.seq_length} exceeds max_position_embeddings {self.max_position_embeddings}; "
                "lower --seq-length"
            )
        if self.padded_vocab_size < self.vocab_size:
            raise InputError(f"padded_vocab_size {self.padded_vocab_size} is less than vocab_size {self.vocab_size}")

    @property
    def ffn_hidden_size(self) -> int:
        return 4 * self.hidden_size
