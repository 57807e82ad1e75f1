"""Sizes of GPT-3, without PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from model.decoder_sizes import BlockProduct, DecoderSizes, UnfitSizes, require_sizes


@dataclass(frozen=True)
class GPT3Config(DecoderSizes):
    """Sizes of GPT-3. Raises UnfitSizes for sizes that do not fit together."""

    max_position_embeddings: int = 2048
    """Rows of the position embedding; the checkpoint stores 2,048."""
    biases: ClassVar[bool] = True
    rotary_positions: ClassVar[bool] = False
    tied: ClassVar[bool] = True
    measuring_norms: ClassVar[bool] = False
    compiled_kernels: ClassVar[float] = 1.12
    separate_kernels: ClassVar[float] = 1.12

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, "max_position_embeddings")
        if self.seq_length > self.max_position_embeddings:
            raise UnfitSizes(
                f"seq_length {self.seq_length} exceeds max_position_embeddings {self.max_position_embeddings}; "
                "lower --seq-length"
            )

    @property
    def ffn_hidden_size(self) -> int:
        return 4 * self.hidden_size

    @property
    def products(self) -> Mapping[str, BlockProduct]:
        H, F = self.hidden_size, self.ffn_hidden_size
        return {
            "qkv": BlockProduct(H, {"query": H, "key": H, "value": H}),
            "dense": BlockProduct(H, {"output": H}),
            "h_to_4h": BlockProduct(H, {"up": F}),
            "4h_to_h": BlockProduct(F, {"down": H}),
        }

    @property
    def num_parameters(self) -> int:
        H = self.hidden_size
        per_layer = self.layer_matrix_weights + 13 * H
        embeddings = (self.padded_vocab_size + self.max_position_embeddings) * H
        return self.num_layers * per_layer + embeddings + 2 * H
