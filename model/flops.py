"""Model FLOPs per token, as everybody compares them (Megatron's convention: full attention, no recomputation)."""

from model.gpt3_config import GPT3Config


def train_flops_per_token(config: GPT3Config) -> float:
    """Forward and backward FLOPs of one trained token: 72 L H^2 (1 + S / 6H + V / 12 L H).

    1. A matrix multiplication takes 2 FLOPs per weight and token forward and 4 backward.
    2. A block has 12 H^2 weights: 3 + 1 in attention, 4 + 4 in the MLP; hence 72 H^2.
    3. Attention scores and values take 4 S H forward per layer and token, the whole S x S square counted.
    4. The output projection has V H weights; the padding is not counted as work.
    """
    return part_flops_per_token(config, num_layers=config.num_layers, output_columns=config.vocab_size)


def part_flops_per_token(config: GPT3Config, *, num_layers: int, output_columns: int) -> float:
    """Of some of the layers; ``output_columns``: of the output projection, 0 where it is not among them."""
    H, S = config.hidden_size, config.seq_length
    return 72 * num_layers * H * H * (1 + S / (6 * H)) + 6 * output_columns * H


def num_parameters(config: GPT3Config) -> int:
    """Parameters, padding rows of the vocabulary included."""
    H = config.hidden_size
    per_layer = 12 * H * H + 13 * H
    embeddings = (config.padded_vocab_size + config.max_position_embeddings) * H
    return config.num_layers * per_layer + embeddings + 2 * H
