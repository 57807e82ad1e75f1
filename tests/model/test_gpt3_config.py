"""Sizes that do not fit together are refused, in one line wherever they come from."""

import pytest

from model.decoder_sizes import UnfitSizes
from model.gpt3_config import GPT3Config


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ((2, 32, 4, 4096, 100, 128), "seq_length 4096 exceeds max_position_embeddings 2048; lower --seq-length"),
        ((2, 30, 4, 16, 100, 128), "hidden_size 30 is not a multiple of num_attention_heads 4"),
        ((2, 32, 0, 16, 100, 128), "num_attention_heads 0: expected 1 to 16,777,216; change --num-attention-heads"),
        ((1001, 32, 4, 16, 100, 128), "num_layers 1001: expected 1 to 1,000; change --num-layers"),
        ((2, -32, 4, 16, 100, 128), "hidden_size -32: expected 1 to 16,777,216; change --hidden-size"),
        ((2, 32, 4, 0, 100, 128), "seq_length 0: expected 1 to 16,777,216; change --seq-length"),
        ((2, 32, 4, 16, 100, 64), "padded_vocab_size 64 is less than vocab_size 100"),
    ],
)
def test_sizes_that_do_not_fit(sizes: tuple[int, int, int, int, int, int], complaint: str) -> None:
    with pytest.raises(UnfitSizes, match=f"^{complaint}$"):
        GPT3Config(*sizes)
