"""Sizes of GPT-3, without PyTorch."""

from dataclasses import dataclass

from model.decoder_sizes import DecoderSizes
from stage.errors import InputError


@dataclass(frozen=True)
class GPT3Config(DecoderSizes):
    """Sizes of GPT-3. Raises InputError for sizes that do not fit together."""

    max_position_embeddings: int = 2048
    """Rows of the position embedding; the checkpoint stores 2,048."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seq_length > self.max_position_embeddings:
            raise InputError(
                f"seq_length {self.seq_length} exceeds max_position_embeddings {self.max_position_embeddings}; "
                "lower --seq-length"
            )

    @property
    def ffn_hidden_size(self) -> int:
        return 4 * self.hidden_size

    @property
    def layer_matrix_weights(self) -> int:
        """3 + 1 in attention, 4 + 4 in the MLP, each H^2."""
        return 12 * self.hidden_size**2

    @property
    def num_parameters(self) -> int:
        H = self.hidden_size
        per_layer = 12 * H * H + 13 * H
        embeddings = (self.padded_vocab_size + self.max_position_embeddings) * H
        return self.num_layers * per_layer + embeddings + 2 * H
