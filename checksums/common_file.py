"""The two small files of a Megatron zarr checkpoint, whose bytes differ between two honest conversions.

Their spelling may differ, their content may not (docs/facts/reference.md f.3):

    metadata.json   blanks and line ends; it is the JSON {"sharded_backend": "zarr"}
    common.pt       what PyTorch puts around the pickle, and whether betas are a list or a tuple; it holds PARAM_GROUP,
                    with Adam's step, and in a BF16 checkpoint, one level deeper
"""

import io
import json
from pathlib import Path
from typing import Any

from foundation.file_formats.torch_archive import archived_pickle
from foundation.regular_files import read_regular

COMMON, METADATA = "common.pt", "metadata.json"
LARGEST = 1 << 26
"""Most bytes that are read; the published files have 28 and 631."""
PARAM_GROUP: dict[str, Any] = {
    "wd_mult": 1.0,
    "lr_mult": 1.0,
    "lr": 5.984178321979609e-05,
    "bias_correction": True,
    "betas": [0.9, 0.95],
    "eps": 1e-08,
    "weight_decay": 0.1,
    "step": 4000,
}
"""The content of the published checkpoint's common.pt."""


def plain_common(path: Path) -> Any:
    """Return the content of a ``common.pt``, of plain values only. Names in the pickle are neither imported nor called.

    Raises ValueError if the file is damaged or names a class, OSError if it cannot be read.
    """
    content = read_regular(path, LARGEST)
    return archived_pickle(io.BytesIO(content), len(content), LARGEST)


def common_content(group: dict[str, Any], *, bf16: bool) -> dict[str, Any]:
    """Return the content of ``common.pt`` for Adam's parameters: a BF16 checkpoint nests the optimizer one level
    deeper."""
    optimizer: dict[str, Any] = {"param_groups": [group]}
    return {"optimizer": {"optimizer": optimizer} if bf16 else optimizer}


def is_only_spelled_otherwise(path: Path, *, bf16: bool) -> bool:
    """Return whether ``path``, named as a file of the benchmark's checkpoint, has the published content."""
    expected = {"sharded_backend": "zarr"} if path.name == METADATA else common_content(PARAM_GROUP, bf16=bf16)
    try:
        content = json.loads(read_regular(path, LARGEST)) if path.name == METADATA else plain_common(path)
    except (ValueError, OSError, RecursionError):
        return False
    return _is_same(content, expected)


def _is_same(content: Any, expected: Any) -> bool:
    """Return whether all keys and values are the same, including their types, except that tuples count as lists."""
    if isinstance(expected, dict):
        same_keys = isinstance(content, dict) and content.keys() == expected.keys()
        return same_keys and all(_is_same(content[key], value) for key, value in expected.items())
    if isinstance(expected, list):
        is_list = isinstance(content, list | tuple) and len(content) == len(expected)
        return is_list and all(map(_is_same, content, expected))
    return type(content) is type(expected) and bool(content == expected)
