"""A model of 2 layers and its checkpoints. Sizes that 8 does not divide make few chunks, and few files are quick."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts

from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.formats.array_table import ARRAYS, MASTER_WEIGHTS, WEIGHTS
from model.gpt3_config import GPT3Config
from tests.benchmark.tiny import CPU

GIB = 1 << 30
CONFIG = GPT3Config(
    num_layers=2,
    hidden_size=36,
    num_attention_heads=4,
    seq_length=40,
    vocab_size=200,
    padded_vocab_size=208,
    max_position_embeddings=208,
)
SIZES = "--seed 3 --layers 2 --hidden 36 --heads 4 --vocab 208 --values sane"
WHOLE = f"{SIZES} --pos 208 --compressor none --chunks whole"
ODD = f"{SIZES} --pos 2060 --compressor zstd --chunks odd"
"""More positions than are kept, chunks whose ends divide nothing."""
SHARDED = f"{SIZES} --pos 2060 --compressor none --chunks shard"
TWO_PROCESSES = dataclasses.replace(CPU, name="cpu_p2", devices_per_node=2)

MakePaxml = Callable[[str], Path]
"""A PAXML checkpoint of these arguments of gen_paxml.py, to be read only."""


def opened(path: Path) -> Any:
    """A zarr array."""
    return ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}}).result()


def read(path: Path) -> np.ndarray[Any, Any]:
    """The values of a zarr array."""
    values: np.ndarray[Any, Any] = opened(path).read().result()
    return values


def write_megatron(paxml: Path, folder: Path) -> dict[str, Path]:
    """An FP32 and a BF16 checkpoint whose FP32 weights are large enough for attention to be far from uniform."""
    for dtype, prefix in (("fp32", WEIGHTS), ("bf16", MASTER_WEIGHTS)):
        paxml_to_megatron(paxml, folder / dtype, dtype=dtype, workers=1, memory_limit=GIB)
        for array in ARRAYS:
            path = folder / dtype / (prefix + array.megatron)
            opened(path).write(read(path).astype(np.float32) * 16.0).result()
    return {"fp32": folder / "fp32", "bf16": folder / "bf16"}
