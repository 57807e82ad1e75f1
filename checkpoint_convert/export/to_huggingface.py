"""Export to Hugging Face's GPT-2: ``config.json`` and safetensors files that ``GPT2LMHeadModel.from_pretrained`` reads.

The model is GPT-2 with a padded vocabulary, so only names and layouts change (docs/facts/reference.md d): the table
GPT2 has both. BF16 weights are the FP32 ones, rounded as the converter rounds them. Each worker holds one tensor, and
its copy while it is reordered (2.5 GB each at 175B in FP32).
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from checkpoint_convert.export.export_files import Export, ExportFile, run_export
from checkpoint_convert.export.exported_arrays import MODEL, Exported, exported_arrays, exported_files, open_source
from checkpoint_convert.export.huggingface_tokenizer import read_model, tokenizer_files
from checkpoint_convert.formats.array_table import ARRAYS, Array, axis_groups, table_rows
from checkpoint_convert.formats.axis_sizes import megatron_axis_sizes
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.run_files import attention_heads
from checkpoint_convert.formats.stored_array import Values, copy_in_order
from stage.errors import InputError

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
INDEX = "model.safetensors.index.json"
FILE_BYTES = 5 * 10**9
DTYPES = {"fp32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
SAFETENSORS_DTYPES = {"fp32": "F32", "bf16": "BF16"}
PAD, END = 0, 1
"""Ids of the tokenizer (docs/facts/reference.md a.5): it has no token for the beginning of a text."""

# Megatron's name (array_table.py), GPT-2's and its axes: Conv1D keeps [in, out], and the outputs of the attention's
# projection lie [q, k, v][head][dimension]. "gain": LayerNorm stores its gain minus one, GPT-2 the gain itself.
GPT2 = """
embedding.word_embeddings.weight                      transformer.wte.weight                    V H
embedding.position_embeddings.weight                  transformer.wpe.weight                    P H
encoder.final_layernorm.weight                        transformer.ln_f.weight                   H          gain
encoder.final_layernorm.bias                          transformer.ln_f.bias                     H
encoder.layers.input_layernorm.weight                 transformer.h.{layer}.ln_1.weight         H          gain
encoder.layers.input_layernorm.bias                   transformer.h.{layer}.ln_1.bias           H
encoder.layers.self_attention.query_key_value.weight  transformer.h.{layer}.attn.c_attn.weight  H (C N D)
encoder.layers.self_attention.query_key_value.bias    transformer.h.{layer}.attn.c_attn.bias    (C N D)
encoder.layers.self_attention.dense.weight            transformer.h.{layer}.attn.c_proj.weight  (N D) H
encoder.layers.self_attention.dense.bias              transformer.h.{layer}.attn.c_proj.bias    H
encoder.layers.post_attention_layernorm.weight        transformer.h.{layer}.ln_2.weight         H          gain
encoder.layers.post_attention_layernorm.bias          transformer.h.{layer}.ln_2.bias           H
encoder.layers.mlp.dense_h_to_4h.weight               transformer.h.{layer}.mlp.c_fc.weight     H F
encoder.layers.mlp.dense_h_to_4h.bias                 transformer.h.{layer}.mlp.c_fc.bias       F
encoder.layers.mlp.dense_4h_to_h.weight               transformer.h.{layer}.mlp.c_proj.weight   F H
encoder.layers.mlp.dense_4h_to_h.bias                 transformer.h.{layer}.mlp.c_proj.bias     H
"""


@dataclass(frozen=True)
class GPT2Tensor:
    """A tensor of GPT-2's, and the layer of our array that it is made of."""

    name: str
    axes: str
    is_gain: bool
    array: Array
    layer: int
    """Layer of the array; 0 if no layer owns the tensor."""

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return _shape(self.axes, sizes)

    def read(self, arrays: Exported, sizes: Mapping[str, int]) -> Values:
        """Read our parameter and return it in GPT-2's layout."""
        layout = self.array.megatron_axes.removeprefix("L ")
        box = whole_box(_shape(layout, sizes))
        layer = (slice(self.layer, self.layer + 1),) if self.array.stacked else ()
        ours = arrays[self.array].read((*layer, *box))
        if self.is_gain:
            ours += 1
        axes = [axis for group in axis_groups(layout) for axis in group]
        order = [axes.index(axis) for group in axis_groups(self.axes) for axis in group]
        apart = ours.reshape([sizes[axis] for axis in axes]).transpose(order)
        if not apart.flags.c_contiguous:
            ours = np.empty(apart.shape, ours.dtype)
            copy_in_order(apart, ours)
        return ours.reshape(self.shape(sizes))


def _shape(layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[axis] for axis in group) for group in axis_groups(layout))


def gpt2_tensors(layers: int) -> Iterator[GPT2Tensor]:
    """Yield GPT-2's tensors, layer by layer, after those that no layer owns."""
    rows = {row[0]: row[1:] for row in table_rows(GPT2)}
    for layer in (None, *range(layers)):
        for array in ARRAYS:
            if array.stacked == (layer is not None):
                name, axes, *gain = rows[array.megatron]
                yield GPT2Tensor(name.format(layer=layer), axes, bool(gain), array, layer or 0)


def write_weights(
    tensors: Sequence[GPT2Tensor], arrays: Exported, sizes: Mapping[str, int], dtype: str, file: IO[bytes]
) -> None:
    """Write a safetensors file of ``dtype``, fp32 or bf16: tensors in this order, one in memory at a time."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # without it transformers refuses the file
    end = 0
    for tensor in tensors:
        shape, begin = tensor.shape(sizes), end
        end += DTYPES[dtype].itemsize * math.prod(shape)
        entries[tensor.name] = {"dtype": SAFETENSORS_DTYPES[dtype], "shape": shape, "data_offsets": (begin, end)}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # so that the values begin at a multiple of 8
    file.write(len(header).to_bytes(8, "little") + header)
    for tensor in tensors:
        values = tensor.read(arrays, sizes).astype(DTYPES[dtype], copy=False)
        file.write(values.reshape(-1).view(np.uint8).data)


def to_huggingface(
    folder: Path,
    output: Path,
    *,
    heads: int | None,
    dtype: str = "fp32",
    tokenizer: Path | None = None,
    file_bytes: int = FILE_BYTES,
    workers: int = 1,
    force: bool = False,
) -> int | None:
    """Export a Megatron zarr checkpoint or a run's own; return the bytes written, None if they are there already.

    ``heads`` is needed if nothing beside the checkpoint gives it (:func:`attention_heads`); ``dtype`` is fp32 or bf16;
    ``tokenizer`` a SentencePiece model. Raises InputError for a source that is incomplete or damaged, a tokenizer with
    more pieces than the model has rows, and for other work under the output's name.
    """
    checkpoint = open_source(folder)
    arrays = exported_arrays(checkpoint, MODEL)
    shapes = {array: stored.shape for array, stored in arrays.items()}
    sizes = megatron_axis_sizes(folder, shapes, lambda hidden: attention_heads(folder, hidden, heads))
    if tokenizer is not None:
        _require_pieces(tokenizer, sizes["V"])
    parts = list(file_parts(gpt2_tensors(sizes["L"]), sizes, file_bytes // DTYPES[dtype].itemsize))
    names = [f"model-{number:05d}-of-{len(parts):05d}.safetensors" for number in range(1, len(parts) + 1)]
    names = names if len(names) > 1 else ["model.safetensors"]
    files = [
        ExportFile(
            name,
            partial(write_weights, tensors, arrays, sizes, dtype),
            sum(DTYPES[dtype].itemsize * math.prod(tensor.shape(sizes)) for tensor in tensors),
        )
        for name, tensors in zip(names, parts, strict=True)
    ]

    def small_files(written: Mapping[str, int]) -> dict[str, bytes]:
        generation = {"do_sample": False, "max_length": sizes["P"], "pad_token_id": PAD, "eos_token_id": END}
        contents = {CONFIG: json_bytes(gpt2_config(sizes, dtype)), GENERATION_CONFIG: json_bytes(generation)}
        if len(files) > 1:
            weight_map = {one.name: file.name for file, part in zip(files, parts, strict=True) for one in part}
            total = {"total_size": sum(file.size for file in files)}
            contents[INDEX] = json_bytes({"metadata": total, "weight_map": dict(sorted(weight_map.items()))})
        return {**contents, **(tokenizer_files(tokenizer) if tokenizer is not None else {})}

    export = Export(
        "to-huggingface",
        options={"heads": sizes["N"], "dtype": dtype, "file_bytes": file_bytes},
        source=folder,
        read=exported_files(checkpoint, MODEL),
        others=[] if tokenizer is None else [tokenizer],
        packages=(),
        files=files,
        small_files=small_files,
    )
    return run_export(export, output, workers=workers, force=force)


def _require_pieces(tokenizer: Path, rows: int) -> None:
    """Raise InputError if the model has fewer rows than the tokenizer has pieces."""
    pieces = len(read_model(tokenizer)[0].pieces)
    if pieces > rows:
        raise InputError(
            f"--tokenizer {tokenizer}: {pieces:,} pieces, but the model has {rows:,} rows; it is another's"
        )


def file_parts(tensors: Iterable[GPT2Tensor], sizes: Mapping[str, int], most_items: int) -> Iterator[list[GPT2Tensor]]:
    """Divide the tensors, in their order, into files of at most ``most_items`` values; a larger tensor is a file of its
    own."""
    part: list[GPT2Tensor] = []
    filled = 0
    for tensor in tensors:
        size = math.prod(tensor.shape(sizes))
        if part and filled + size > most_items:
            yield part
            part, filled = [], 0
        part.append(tensor)
        filled += size
    yield part


def gpt2_config(sizes: Mapping[str, int], dtype: str) -> dict[str, Any]:
    """Return the settings with which GPT-2 of transformers computes what ``model/gpt3.py`` does.

    ``gelu_new`` is the tanh approximation with the whole sqrt(2/pi).
    """
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": sizes["L"],
        "n_head": sizes["N"],
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
        "torch_dtype": DTYPES[dtype].name,
    }


def json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
