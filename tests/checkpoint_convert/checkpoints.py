"""One small checkpoint in each format."""

import json
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

SAFETENSORS_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}


def raw_bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The format, written out."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        end = len(data) + len(raw_bytes(tensor))
        kind = SAFETENSORS_DTYPES[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), end]}
        data += raw_bytes(tensor)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_sharded_safetensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    folder.mkdir()
    weight_map = {}
    for number, (name, tensor) in enumerate(tensors.items()):
        weight_map[name] = f"model-{number}.safetensors"
        write_safetensors(folder / weight_map[name], {name: tensor})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def write_dcp(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    with warnings.catch_warnings(action="ignore"):  # that this is a single process
        dcp.save(dict(tensors), checkpoint_id=folder, no_dist=True)


class Harmful:
    """Unpickled, it makes the file whose name it was given."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w')",)


def write_harmful_dcp(folder: Path, made: Path) -> None:
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(Harmful(made)))
