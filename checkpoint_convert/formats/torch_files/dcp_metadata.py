"""The metadata of PyTorch's distributed checkpoints (DCP), a pickle, read without running what may be in it.

An unpickler knows the names that PyTorch writes there, and builds plain objects of our own for them; any other name is
refused.
"""

import io
import pickle
import pickletools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from stage.errors import InputError, first_line

LARGEST_METADATA = 1 << 30
"""Bytes; a shard of an array takes about 150."""
MOST_AXES = 64

DTYPES = {
    "bool": np.dtype(np.bool_),
    "uint8": np.dtype("u1"),
    "int8": np.dtype("i1"),
    "int16": np.dtype("<i2"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}


class _Fields:
    """Stands for every class of DCP: whatever fields the pickle gives it."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__["state"] = state

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__.get("state")
        if not isinstance(state, dict) or name not in state:
            raise AttributeError(f"no {name}")
        return state[name]


def _size(values: Sequence[int] = ()) -> tuple[int, ...]:
    if len(values) > MOST_AXES:  # copies of copies could take any amount of memory
        raise pickle.UnpicklingError(f"{len(values)} axes")
    return tuple(values)


def _ignored(*_: Any) -> None:
    """Layout, memory format, the folder it was saved in: nothing depends on them."""


_DCP = "torch.distributed.checkpoint."
_MEGATRON = "megatron.core.dist_checkpointing.strategies.torch"
KNOWN: Mapping[tuple[str, str], Any] = {
    (_DCP + "metadata", "Metadata"): _Fields,
    (_DCP + "metadata", "TensorStorageMetadata"): _Fields,
    (_DCP + "metadata", "BytesStorageMetadata"): _Fields,
    (_DCP + "metadata", "ChunkStorageMetadata"): _Fields,
    (_DCP + "metadata", "TensorProperties"): _Fields,
    (_DCP + "metadata", "MetadataIndex"): _Fields,
    (_DCP + "metadata", "StorageMeta"): _Fields,
    (_DCP + "metadata", "_MEM_FORMAT_ENCODING"): _ignored,
    (_DCP + "filesystem", "_StorageInfo"): _Fields,
    (_DCP + "planner", "SavePlan"): _Fields,  # Megatron-Core notes who wrote what, too
    (_DCP + "planner", "WriteItem"): _Fields,
    (_DCP + "planner", "TensorWriteData"): _Fields,
    (_DCP + "planner", "WriteItemType"): _ignored,
    (_MEGATRON, "MCoreMetadata"): _Fields,
    (_MEGATRON, "MCoreSavePlan"): _Fields,
    ("torch", "Size"): _size,
    ("torch.serialization", "_get_layout"): _ignored,
    ("pathlib", "PosixPath"): _ignored,
    ("pathlib._local", "PosixPath"): _ignored,
    **{("torch", name): name for name in DTYPES},
}
"""All that a pickle of DCP's metadata may name, and what is built in its place."""


SIZED = {"PUT", "BINPUT", "LONG_BINPUT", "FRAME"}
"""Operations whose number no honest pickle of n bytes has above n."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint needs and could run code")
        return KNOWN[module, name]


def read_metadata(path: Path) -> Any:
    """The fields of a ``.metadata`` file, under PyTorch's names for them.

    Raises InputError for a file that is damaged, too large, asks for more memory than it has bytes, or names anything
    but what is KNOWN.
    """
    if path.stat().st_size > LARGEST_METADATA:
        raise InputError(f"{path}: {path.stat().st_size:,} bytes, more than any checkpoint's metadata has")
    try:
        content = path.read_bytes()
        check_sizes(content)
        return _Unpickler(io.BytesIO(content)).load()
    except Exception as error:  # a damaged pickle can raise anything
        reason = first_line(error)
        raise InputError(f"{path}: not the metadata of a distributed checkpoint ({reason})") from error


def check_sizes(content: bytes) -> None:
    """Numbers by which the unpickler takes memory before it has seen the data, and strings that are not all there."""
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in SIZED and argument is not None and argument > len(content):
            raise pickle.UnpicklingError(f"{operation.name} {argument} in {len(content)} bytes")
