"""Write a safetensors file tensor by tensor, each when its turn comes: the format's own library wants all at once."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from checkpoint_convert.export.export_files import HashingFile
from stage.errors import InputError

DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}
PIECE_BYTES = 1 << 26


@dataclass(frozen=True)
class TensorLayout:
    """A tensor that is to be written."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def write_safetensors(
    file: HashingFile, tensors: Mapping[str, TensorLayout], metadata: Mapping[str, str], read: Callable[[str], Tensor]
) -> None:
    """Write all of ``tensors``; ``read(name)`` gives one. Raises InputError where it is not of its shape and dtype."""
    header, end = {"__metadata__": dict(metadata)}, 0
    entries: dict[str, object] = dict(header)
    for name, layout in tensors.items():
        places = [end, end + layout.bytes]
        entries[name] = {"dtype": DTYPES[layout.dtype], "shape": list(layout.shape), "data_offsets": places}
        end += layout.bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the values begin at a multiple of 8
    file.write(len(text).to_bytes(8, "little") + text)
    for name, layout in tensors.items():
        tensor = read(name)
        if (tuple(tensor.shape), tensor.dtype) != (layout.shape, layout.dtype):
            raise InputError(
                f"{name}: {list(tensor.shape)} {tensor.dtype}, expected {list(layout.shape)} {layout.dtype}"
            )
        values = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
        for start in range(0, len(values), PIECE_BYTES):
            file.write(values[start : start + PIECE_BYTES])
