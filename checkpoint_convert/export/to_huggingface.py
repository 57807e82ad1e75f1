"""Export to Hugging Face: ``config.json`` and safetensors files that ``AutoModelForCausalLM.from_pretrained`` reads.

Names and layouts change as ``huggingface_forms`` says. BF16 weights are the FP32 ones, rounded as the converter rounds
them. Each worker holds one tensor, and its copy while it is reordered (2.5 GB each at 175B in FP32).
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

from checkpoint_convert.export.exported_arrays import (
    MODEL,
    Exported,
    exported_arrays,
    exported_files,
    file_task,
    model_of,
    open_source,
)
from checkpoint_convert.export.huggingface_forms import FORMS
from checkpoint_convert.export.huggingface_tokenizer import JSON, SENTENCEPIECE_VERSION, pieces_of, tokenizer_files
from checkpoint_convert.formats.array_table import MODELS, Array, axis_groups
from checkpoint_convert.formats.axis_sizes import attention_heads, megatron_axis_sizes
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.stored_array import Values, copy_in_order
from checkpoint_convert.formats.summed_output import Produced, Product, produce, small_files
from foundation.errors import InputError
from foundation.sizes import require_workers

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
INDEX = "model.safetensors.index.json"
FILE_BYTES = 5 * 10**9
DTYPES = {"fp32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
SAFETENSORS_DTYPES = {"fp32": "F32", "bf16": "BF16"}


@dataclass(frozen=True)
class HuggingfaceTensor:
    """A tensor of Hugging Face's, and the layer of our array that it is made of."""

    name: str
    axes: str
    is_gain: bool
    array: Array
    layer: int
    """Layer of the array; 0 if no layer owns the tensor."""

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return _shape(self.axes, sizes)

    def read(self, arrays: Exported, sizes: Mapping[str, int]) -> Values:
        """Read our parameter and return it in Hugging Face's layout."""
        layout = self.array.megatron_axes.removeprefix("L ")
        box = whole_box(_shape(layout, sizes))
        layer = (slice(self.layer, self.layer + 1),) if self.array.stacked else ()
        values = arrays[self.array].read((*layer, *box))
        if self.is_gain:
            values += 1
        axes = [axis for group in axis_groups(layout) for axis in group]
        order = [axes.index(axis) for group in axis_groups(self.axes) for axis in group]
        apart = values.reshape([sizes[axis] for axis in axes]).transpose(order)
        if not apart.flags.c_contiguous:
            values = np.empty(apart.shape, values.dtype)
            copy_in_order(apart, values)
        return values.reshape(self.shape(sizes))


def _shape(layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(math.prod(sizes[axis] for axis in group) for group in axis_groups(layout))


def huggingface_tensors(model: str, layers: int) -> Iterator[HuggingfaceTensor]:
    """Yield the tensors of ``model``, one of FORMS, layer by layer, after those that no layer owns."""
    for layer in (None, *range(layers)):
        for array in MODELS[model]:
            if array.stacked == (layer is not None):
                unchanged = (array.parameter(layer or 0), array.megatron_axes.removeprefix("L "))
                name, axes, *gain = FORMS[model].tensors.get(array.megatron, unchanged)
                yield HuggingfaceTensor(name.format(layer=layer), axes, bool(gain), array, layer or 0)


def write_weights(
    tensors: Sequence[HuggingfaceTensor], arrays: Exported, sizes: Mapping[str, int], dtype: str, file: IO[bytes]
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
) -> Produced | None:
    """Export a Megatron zarr checkpoint or a run's own; return None if the export is there already.

    ``heads`` is needed if nothing beside the checkpoint gives it (:func:`attention_heads`); ``dtype`` is fp32 or bf16;
    ``tokenizer`` a SentencePiece model or a tokenizer.json. Raises InputError for a source that is incomplete or
    damaged, a tokenizer with more pieces than the model has rows, and for other work under the output's name.
    """
    require_workers(workers)
    checkpoint = open_source(folder)
    model = model_of(checkpoint)
    form, itemsize = FORMS[model], DTYPES[dtype].itemsize
    arrays = exported_arrays(checkpoint, MODEL)
    shapes = {array: stored.shape for array, stored in arrays.items()}
    sizes = megatron_axis_sizes(folder, shapes, lambda hidden: attention_heads(folder, hidden, heads))
    if tokenizer is not None:
        _require_pieces(tokenizer, sizes["V"])
    parts = list(file_parts(huggingface_tensors(model, sizes["L"]), sizes, file_bytes // itemsize))
    names = [f"model-{number:05d}-of-{len(parts):05d}.safetensors" for number in range(1, len(parts) + 1)]
    names = names if len(names) > 1 else ["model.safetensors"]
    bytes_of = [sum(itemsize * math.prod(tensor.shape(sizes)) for tensor in part) for part in parts]
    small = {
        CONFIG: json_bytes({**form.config(sizes), "torch_dtype": DTYPES[dtype].name}),
        GENERATION_CONFIG: json_bytes(form.generation(sizes)),
        **(tokenizer_files(tokenizer) if tokenizer is not None else {}),
    }
    if len(names) > 1:
        weight_map = {tensor.name: name for name, part in zip(names, parts, strict=True) for tensor in part}
        total = {"total_size": sum(bytes_of)}
        small[INDEX] = json_bytes({"metadata": total, "weight_map": dict(sorted(weight_map.items()))})
    product = Product(
        stage="to-huggingface",
        options={"heads": sizes["N"], "dtype": dtype, "file_bytes": file_bytes},
        source=exported_files(checkpoint, [MODEL]),
        tasks=[
            *(
                file_task(name, partial(write_weights, part, arrays, sizes, dtype), size)
                for name, part, size in zip(names, parts, bytes_of, strict=True)
            ),
            small_files(small, lambda: small),
        ],
        threads=workers,
        further_inputs=[] if tokenizer is None else [tokenizer],
        bytes_version=1 if tokenizer is None or tokenizer.suffix == JSON else SENTENCEPIECE_VERSION,
    )
    return produce(product, output, force=force)


def _require_pieces(tokenizer: Path, rows: int) -> None:
    """Raise InputError if the model has fewer rows than the tokenizer has pieces."""
    pieces = pieces_of(tokenizer)
    if pieces > rows:
        raise InputError(
            f"--tokenizer {tokenizer}: {pieces:,} pieces, but the model has {rows:,} rows; it is another's"
        )


def file_parts(
    tensors: Iterable[HuggingfaceTensor], sizes: Mapping[str, int], most_items: int
) -> Iterator[list[HuggingfaceTensor]]:
    """Divide the tensors, in their order, into files of at most ``most_items`` values; a larger tensor is a file of its
    own."""
    part: list[HuggingfaceTensor] = []
    filled = 0
    for tensor in tensors:
        size = math.prod(tensor.shape(sizes))
        if part and filled + size > most_items:
            yield part
            part, filled = [], 0
        part.append(tensor)
        filled += size
    yield part


def json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
