"""A model of 2 layers and its converted checkpoints."""

import dataclasses
from pathlib import Path

import numpy as np
import tensorstore as ts

from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.formats.array_table import ARRAYS, MASTER_WEIGHTS, WEIGHTS
from model.gpt3_config import GPT3Config
from tests.benchmark.tiny import CPU
from tests.support import make_paxml

CONFIG = GPT3Config(
    num_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    seq_length=40,
    vocab_size=60,
    padded_vocab_size=64,
    max_position_embeddings=40,
)
PAXML = "--seed 3 --layers 2 --hidden 32 --heads 4 --vocab 64 --pos 40 --values sane --compressor none --chunks whole"
TWO_PROCESSES = dataclasses.replace(CPU, name="cpu_p2", devices_per_node=2)


def write_megatron(folder: Path) -> dict[str, Path]:
    """An FP32 and a BF16 checkpoint whose FP32 weights are large enough for attention to be far from uniform."""
    paxml = make_paxml(folder / "paxml", PAXML)
    for dtype, prefix in (("fp32", WEIGHTS), ("bf16", MASTER_WEIGHTS)):
        paxml_to_megatron(paxml, folder / dtype, dtype=dtype, workers=1, memory_limit=1 << 30)
        for array in ARRAYS:
            _scale(folder / dtype / (prefix + array.megatron), 16.0)
    return {"fp32": folder / "fp32", "bf16": folder / "bf16"}


def _scale(path: Path, factor: float) -> None:
    array = ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}}).result()
    array.write(array.read().result().astype(np.float32) * factor).result()
