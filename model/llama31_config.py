"""Sizes of Llama 3.1, without PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from model.decoder_sizes import BlockProduct, DecoderSizes, UnfitSizes, require_sizes


@dataclass(frozen=True)
class Llama31Config(DecoderSizes):
    """Sizes of Llama 3.1. Raises UnfitSizes for sizes that do not fit together."""

    num_key_value_heads: int
    """K; each serves N / K heads of queries."""
    ffn_hidden_size: int
    """Width between the matrices of the MLP, F."""
    biases: ClassVar[bool] = False
    rotary_positions: ClassVar[bool] = True
    tied: ClassVar[bool] = False
    measuring_norms: ClassVar[bool] = True
    compiled_kernels: ClassVar[float] = 1.01
    separate_kernels: ClassVar[float] = 2.57

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(self, "num_key_value_heads", "ffn_hidden_size")
        if self.num_attention_heads % self.num_key_value_heads:
            raise UnfitSizes(
                f"num_attention_heads {self.num_attention_heads} is not a multiple of num_key_value_heads "
                f"{self.num_key_value_heads}; change --num-key-value-heads"
            )
        if self.head_size % 2:
            raise UnfitSizes(
                f"num_attention_heads {self.num_attention_heads} of hidden_size {self.hidden_size} are heads of "
                f"{self.head_size}; the rotary embedding rotates pairs of values, so expected an even size; change "
                "--num-attention-heads"
            )

    @property
    def cut_by_tensor_parallelism(self) -> tuple[str, ...]:
        return (*super().cut_by_tensor_parallelism, "num_key_value_heads", "ffn_hidden_size")

    @property
    def products(self) -> Mapping[str, BlockProduct]:
        H, F, keys = self.hidden_size, self.ffn_hidden_size, self.num_key_value_heads * self.head_size
        return {
            "q_proj": BlockProduct(H, {"query": H}),
            "k_proj": BlockProduct(H, {"key": keys}),
            "v_proj": BlockProduct(H, {"value": keys}),
            "o_proj": BlockProduct(H, {"output": H}),
            "gate_proj": BlockProduct(H, {"gate": F}),
            "up_proj": BlockProduct(H, {"up": F}),
            "down_proj": BlockProduct(F, {"down": H}),
        }

    @property
    def num_parameters(self) -> int:
        ends = 2 * self.padded_vocab_size * self.hidden_size + self.hidden_size
        return self.num_layers * (self.layer_matrix_weights + 2 * self.hidden_size) + ends
