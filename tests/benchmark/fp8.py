"""The tiny benchmarks at widths that FP8 takes, on one tensor-parallel rank and on two. Weights are drawn at random."""

import dataclasses

from tests.benchmark.llama import TINY_LLAMA
from tests.benchmark.tiny import MODEL, SHORT

FP8_GPT3 = dataclasses.replace(
    SHORT,
    name="fp8_gpt3",
    model=dataclasses.replace(MODEL, hidden_size=64),
    optimizer=dataclasses.replace(SHORT.optimizer, lr_warmup_samples=24),
    start_iterations=0,
    train_samples=72,
)
FP8_LLAMA = dataclasses.replace(
    TINY_LLAMA, name="fp8_llama", model=dataclasses.replace(TINY_LLAMA.model, hidden_size=64)
)
"""Six steps each, with two evaluations."""
