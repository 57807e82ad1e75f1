"""To Hugging Face's GPT-2: ``config.json`` and safetensors shards that ``GPT2LMHeadModel.from_pretrained`` reads.

The model is GPT-2 with a padded vocabulary, so nothing but names and layouts changes (docs/facts/reference.md d):

    gain         LayerNorm stores its gain minus one, GPT-2 the gain itself
    transposed   GPT-2's Conv1D keeps [in, out], a linear layer [out, in]
    qkv_*        the projection's outputs lie [head][q, k, v][dimension], in GPT-2 [q, k, v][head][dimension]

BF16 weights are the FP32 ones, rounded as the converter rounds them. Each worker holds one tensor, and its copy while
it is reordered (2.5 GB each at 175B in FP32).
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from checkpoint_convert.export.export_files import Export, HashingFile, Made, run_export
from checkpoint_convert.export.huggingface_tokenizer import read_model, write_tokenizer
from checkpoint_convert.export.safetensors_stream import TensorLayout, write_safetensors
from checkpoint_convert.export.tensor_source import MODEL, open_tensor_source, opened_source
from checkpoint_convert.model_sizes.attention_heads import attention_heads
from checkpoint_convert.model_sizes.axis_sizes import parameter_axis_sizes
from checkpoint_convert.model_sizes.parameters import layer_name, parameter_shapes
from stage.digest import md5_file
from stage.errors import InputError

STAGE = "to-huggingface"
CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 5 * 10**9
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PAD, END = 0, 1
"""Ids of the tokenizer (docs/facts/reference.md a.5): it has no token for the beginning of a text."""


def as_it_is(tensor: Tensor, heads: int) -> Tensor:
    return tensor


def gain(weight: Tensor, heads: int) -> Tensor:
    return 1 + weight


def transposed(weight: Tensor, heads: int) -> Tensor:
    return weight.T.contiguous()


def qkv_weight(weight: Tensor, heads: int) -> Tensor:
    """[(heads 3 dimension), in] -> [in, (3 heads dimension)]."""
    rows, inputs = weight.shape
    return weight.view(heads, 3, -1, inputs).permute(3, 1, 0, 2).reshape(inputs, rows)


def qkv_bias(bias: Tensor, heads: int) -> Tensor:
    """[(heads 3 dimension)] -> [(3 heads dimension)]."""
    return bias.view(heads, 3, -1).transpose(0, 1).reshape(-1)


@dataclass(frozen=True)
class Parameter:
    """A parameter of ours (``array_table.py``) and GPT-2's; {layer} stands for the layer's number."""

    ours: str
    gpt2: str
    change: Callable[[Tensor, int], Tensor] = as_it_is

    def shape(self, ours: tuple[int, ...]) -> tuple[int, ...]:
        """In GPT-2, of a parameter that has the shape ``ours`` here."""
        return ours[::-1] if self.change in (transposed, qkv_weight) else ours


PARAMETERS = (
    Parameter("embedding.word_embeddings.weight", "transformer.wte.weight"),  # also lm_head.weight, tied
    Parameter("embedding.position_embeddings.weight", "transformer.wpe.weight"),
    Parameter("encoder.final_layernorm.weight", "transformer.ln_f.weight", gain),
    Parameter("encoder.final_layernorm.bias", "transformer.ln_f.bias"),
)
LAYER_PARAMETERS = (
    Parameter("encoder.layers.input_layernorm.weight", "transformer.h.{layer}.ln_1.weight", gain),
    Parameter("encoder.layers.input_layernorm.bias", "transformer.h.{layer}.ln_1.bias"),
    Parameter(
        "encoder.layers.self_attention.query_key_value.weight", "transformer.h.{layer}.attn.c_attn.weight", qkv_weight
    ),
    Parameter("encoder.layers.self_attention.query_key_value.bias", "transformer.h.{layer}.attn.c_attn.bias", qkv_bias),
    Parameter("encoder.layers.self_attention.dense.weight", "transformer.h.{layer}.attn.c_proj.weight", transposed),
    Parameter("encoder.layers.self_attention.dense.bias", "transformer.h.{layer}.attn.c_proj.bias"),
    Parameter("encoder.layers.post_attention_layernorm.weight", "transformer.h.{layer}.ln_2.weight", gain),
    Parameter("encoder.layers.post_attention_layernorm.bias", "transformer.h.{layer}.ln_2.bias"),
    Parameter("encoder.layers.mlp.dense_h_to_4h.weight", "transformer.h.{layer}.mlp.c_fc.weight", transposed),
    Parameter("encoder.layers.mlp.dense_h_to_4h.bias", "transformer.h.{layer}.mlp.c_fc.bias"),
    Parameter("encoder.layers.mlp.dense_4h_to_h.weight", "transformer.h.{layer}.mlp.c_proj.weight", transposed),
    Parameter("encoder.layers.mlp.dense_4h_to_h.bias", "transformer.h.{layer}.mlp.c_proj.bias"),
)


@dataclass(frozen=True)
class WeightsFile:
    """One shard."""

    name: str
    folder: Path
    """The source."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of our parameters in it."""
    layers: int
    heads: int
    dtype: str

    @property
    def bytes(self) -> int:
        return DTYPES[self.dtype].itemsize * sum(math.prod(shape) for shape in self.shapes.values())

    def write(self, file: HashingFile) -> None:
        source, rows = opened_source(self.folder), by_name(self.layers)
        ours = {rows[name].gpt2: name for name in self.shapes}

        def read(gpt2: str) -> Tensor:
            name = ours[gpt2]
            weight = rows[name].change(source.read(f"{MODEL}/{name}", self.shapes[name]), self.heads)
            return weight.to(DTYPES[self.dtype])

        layouts = {
            gpt2: TensorLayout(rows[name].shape(self.shapes[name]), DTYPES[self.dtype]) for gpt2, name in ours.items()
        }
        write_safetensors(file, layouts, {"format": "pt"}, read)  # without it transformers refuses the file


def to_huggingface(
    folder: Path,
    output: Path,
    *,
    heads: int | None,
    dtype: str = "fp32",
    tokenizer: Path | None = None,
    shard_bytes: int = SHARD_BYTES,
    workers: int = 1,
    force: bool = False,
) -> int | None:
    """Export a Megatron zarr checkpoint or a run's own; returns the bytes written, None if they are there already.

    ``heads`` is needed where nothing near the checkpoint tells it (:func:`attention_heads`); ``dtype`` is fp32 or bf16;
    ``tokenizer`` a SentencePiece model. Raises InputError for a source that is incomplete or damaged, a full disk, a
    tokenizer that has more pieces than the model has rows, and for other work under the output's name.
    """
    source = open_tensor_source(folder)
    opened_source.cache_clear()
    sizes = parameter_axis_sizes(folder, source.shapes(MODEL))
    options: dict[str, Any] = {"heads": attention_heads(folder, sizes["H"], heads), "dtype": dtype}
    if tokenizer is not None:
        require_pieces(tokenizer, sizes["V"])
        options["tokenizer"] = md5_file(tokenizer)
    shapes = parameter_shapes(sizes)
    parts = list(shards(shapes, shard_bytes, DTYPES[dtype].itemsize))
    files = [
        WeightsFile(name, folder, {key: shapes[key] for key in keys}, sizes["L"], options["heads"], dtype)
        for name, keys in zip(shard_names(len(parts)), parts, strict=True)
    ]

    def write_small_files(partial: Path, made: Mapping[str, Made]) -> None:
        write_json(partial / CONFIG, gpt2_config(sizes, options["heads"], dtype))
        write_json(partial / GENERATION_CONFIG, generation_config(sizes))
        if len(files) > 1:
            write_json(partial / INDEX, _index(files, sizes["L"]))
        if tokenizer is not None:
            write_tokenizer(tokenizer, partial)

    export = Export(STAGE, options, folder, output, ("tensorstore", "torch"))
    return run_export(export, files, write_small_files, workers=workers, force=force)


def require_pieces(tokenizer: Path, rows: int) -> None:
    """Raise InputError where the model has no row for each of the tokenizer's pieces."""
    if not tokenizer.is_file():
        raise InputError(f"--tokenizer {tokenizer}: no such file")
    pieces = len(read_model(tokenizer).pieces)
    if pieces > rows:
        raise InputError(
            f"--tokenizer {tokenizer}: {pieces:,} pieces, but the model has {rows:,} rows; it is another's"
        )


def shard_names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def _index(files: Sequence[WeightsFile], layers: int) -> dict[str, Any]:
    rows = by_name(layers)
    weight_map = {rows[name].gpt2: file.name for file in files for name in file.shapes}
    return {
        "metadata": {"total_size": sum(file.bytes for file in files)},
        "weight_map": dict(sorted(weight_map.items())),
    }


def gpt2_config(sizes: Mapping[str, int], heads: int, dtype: str) -> dict[str, Any]:
    """What makes GPT-2 of transformers compute what ``model/gpt3.py`` does.

    ``gelu_new`` is the tanh approximation with the whole sqrt(2/pi).
    """
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": sizes["L"],
        "n_head": heads,
        "n_embd": sizes["H"],
        "n_inner": sizes["F"],
        "n_positions": sizes["P"],
        "n_ctx": sizes["P"],
        "vocab_size": sizes["V"],
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "initializer_range": 0.006,
        "pad_token_id": PAD,
        "bos_token_id": None,
        "eos_token_id": END,
        "torch_dtype": str(DTYPES[dtype]).removeprefix("torch."),
    }


def generation_config(sizes: Mapping[str, int]) -> dict[str, Any]:
    """The likeliest token each time, until the text ends or the positions do."""
    return {"do_sample": False, "max_length": sizes["P"], "pad_token_id": PAD, "eos_token_id": END}


def by_name(layers: int) -> dict[str, Parameter]:
    """The table by our names, each layer's rows filled in."""
    rows = {row.ours: row for row in PARAMETERS}
    for layer in range(layers):
        for row in LAYER_PARAMETERS:
            rows[layer_name(row.ours, layer)] = Parameter(row.ours, row.gpt2.format(layer=layer), row.change)
    return rows


def shards(shapes: Mapping[str, tuple[int, ...]], shard_bytes: int, itemsize: int) -> Iterator[list[str]]:
    """Names in their order, cut so that a shard's tensors take ``shard_bytes`` at most, or are a single larger one."""
    names: list[str] = []
    filled = 0
    for name, shape in shapes.items():
        size = itemsize * math.prod(shape)
        if names and filled + size > shard_bytes:
            yield names
            names, filled = [], 0
        names.append(name)
        filled += size
    yield names


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
