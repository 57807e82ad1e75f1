"""A Llama of a few seconds, on the tiny benchmark's data."""

import dataclasses

from benchmark.config.benchmarks import REHEARSAL_LLAMA
from model.llama31_config import Llama31Config

TINY_LLAMA = dataclasses.replace(
    REHEARSAL_LLAMA,
    name="tiny_llama",
    model=Llama31Config(
        num_layers=4,
        hidden_size=40,
        num_attention_heads=4,
        seq_length=16,
        vocab_size=100,
        padded_vocab_size=128,
        num_key_value_heads=2,
        ffn_hidden_size=96,
    ),
    global_batch_size=12,
    start_global_batch_size=12,
    train_samples=72,
    eval_interval_samples=36,
    evaluation_sequences=10,
    target_log_perplexity=None,
)
"""Six steps, with two evaluations."""
