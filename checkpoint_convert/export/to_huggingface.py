"""To Hugging Face's GPT-2: ``config.json`` and safetensors shards that ``GPT2LMHeadModel.from_pretrained`` reads.

The model is GPT-2 with a padded vocabulary, so nothing but names and layouts changes (docs/facts/reference.md d):

    gain         LayerNorm stores its gain minus one, GPT-2 the gain itself
    transposed   GPT-2's Conv1D keeps [in, out], a linear layer [out, in]
    qkv_*        the projection's outputs lie [head][q, k, v][dimension], in GPT-2 [q, k, v][head][dimension]

One tensor is read at a time. Memory: one shard, and twice the largest tensor (2.5 GB at 175B) while it is reordered.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from checkpoint_convert.conversion.output_records import already_made, require_apart, write_sums_and_manifest
from checkpoint_convert.export.tensor_source import MODEL, TensorSource, open_tensor_source
from checkpoint_convert.model_sizes.attention_heads import attention_heads
from checkpoint_convert.model_sizes.axis_sizes import parameter_axis_sizes
from checkpoint_convert.model_sizes.parameters import layer_name, parameter_shapes
from checksums.md5_list import digest_folder, format_list
from stage.manifest import require_intact
from stage.progress import Advance, progress
from stage.publish import published_folder

STAGE = "to-huggingface"
CONFIG = "config.json"
SHARD_BYTES = 5 * 10**9
FLOAT32_BYTES = 4


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


def to_huggingface(
    folder: Path, output: Path, *, heads: int | None, shard_bytes: int = SHARD_BYTES, force: bool = False
) -> int | None:
    """Export a Megatron zarr checkpoint or a run's own; returns the bytes written, None if they are there already.

    ``heads`` is needed where nothing near the checkpoint tells it (:func:`attention_heads`). Raises InputError for
    a source that is incomplete or damaged, and for other work under the output's name.
    """
    started = time.monotonic()
    source = open_tensor_source(folder)
    sizes = parameter_axis_sizes(folder, source.shapes(MODEL))
    options = {"heads": attention_heads(folder, sizes["H"], heads)}
    require_apart(folder, output)
    if already_made(folder, output, stage=STAGE, options=options, force=force):
        return None
    with published_folder(output) as partial:
        write_json(partial / CONFIG, gpt2_config(sizes, options["heads"]))
        _write_shards(partial, source, sizes, options["heads"], shard_bytes)
    packages = ["safetensors", "tensorstore", "torch"]
    return write_sums_and_manifest(
        output,
        format_list(digest_folder(output)),
        stage=STAGE,
        options=options,
        source=folder,
        source_made_by=require_intact(folder),
        packages=packages,
        started=started,
    )


def gpt2_config(sizes: Mapping[str, int], heads: int) -> dict[str, Any]:
    """What makes GPT-2 of transformers compute what ``model/gpt3.py`` does.

    ``gelu_new`` is the tanh approximation with the whole sqrt(2/pi). The token ids are the tokenizer's
    (docs/facts/reference.md a.5): it has no token for the beginning of a text.
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
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 1,
        "torch_dtype": "float32",
    }


def by_name(layers: int) -> dict[str, Parameter]:
    """The table by our names, each layer's rows filled in."""
    rows = {row.ours: row for row in PARAMETERS}
    for layer in range(layers):
        for row in LAYER_PARAMETERS:
            rows[layer_name(row.ours, layer)] = Parameter(row.ours, row.gpt2.format(layer=layer), row.change)
    return rows


def shards(shapes: Mapping[str, tuple[int, ...]], shard_bytes: int) -> Iterator[list[str]]:
    """Names in their order, cut so that a shard's tensors take ``shard_bytes`` at most, or are a single larger one."""
    names: list[str] = []
    filled = 0
    for name, shape in shapes.items():
        size = FLOAT32_BYTES * math.prod(shape)
        if names and filled + size > shard_bytes:
            yield names
            names, filled = [], 0
        names.append(name)
        filled += size
    yield names


def _write_shards(folder: Path, source: TensorSource, sizes: Mapping[str, int], heads: int, shard_bytes: int) -> None:
    shapes = parameter_shapes(sizes)
    total = FLOAT32_BYTES * sum(math.prod(shape) for shape in shapes.values())
    rows, parts = by_name(sizes["L"]), list(shards(shapes, shard_bytes))
    weight_map: dict[str, str] = {}
    with progress("export", total, "bytes") as advance:
        for number, names in enumerate(parts, 1):
            file = "model.safetensors" if len(parts) == 1 else f"model-{number:05d}-of-{len(parts):05d}.safetensors"
            _write_shard(folder / file, source, {name: shapes[name] for name in names}, rows, heads, advance)
            weight_map.update({rows[name].gpt2: file for name in names})
    if len(parts) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        write_json(folder / "model.safetensors.index.json", index)


def _write_shard(
    path: Path,
    source: TensorSource,
    shapes: Mapping[str, tuple[int, ...]],
    rows: Mapping[str, Parameter],
    heads: int,
    advance: Advance,
) -> None:
    tensors: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        row = rows[name]
        tensors[row.gpt2] = row.change(source.read(f"{MODEL}/{name}", shape), heads)
        advance(FLOAT32_BYTES * math.prod(shape))
    save_file(tensors, path, metadata={"format": "pt"})  # without it transformers refuses the file
    shutil.copymode(path.parent / CONFIG, path)  # safetensors lets nobody else read it


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
