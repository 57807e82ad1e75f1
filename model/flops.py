"""Model FLOPs per token, in the usual convention (Megatron's convention: full attention, no recomputation)."""

from model.decoder_sizes import DecoderSizes


def train_flops_per_token(sizes: DecoderSizes) -> float:
    """Forward and backward FLOPs of one trained token; of GPT-3 72 L H^2 (1 + S / 6H + V / 12 L H).

    1. A matrix multiplication takes 2 FLOPs per weight and token forward and 4 backward.
    2. The weights of a block's matrices are the model's own to count.
    3. Attention scores and values take 4 S H forward per layer and token, the whole S x S square counted.
    4. The output projection has V H weights; the padding is not counted as work.
    """
    return part_flops_per_token(sizes, num_layers=sizes.num_layers, output_columns=sizes.vocab_size)


def part_flops_per_token(sizes: DecoderSizes, *, num_layers: int, output_columns: int) -> float:
    """Return FLOPs per token of ``num_layers`` layers and of ``output_columns`` columns of the output projection."""
    H, S, weights = sizes.hidden_size, sizes.seq_length, sizes.layer_matrix_weights
    return 6 * num_layers * weights * (1 + 2 * S * H / weights) + 6 * output_columns * H


def num_parameters(sizes: DecoderSizes) -> int:
    """Parameters, padding rows of the vocabulary included."""
    return sizes.num_parameters
