"""The two small files beside the arrays: ``metadata.json`` and ``common.pt`` (docs/facts/reference.md f.3)."""

import io
from pathlib import Path
from typing import Any

from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, WEIGHTS
from stage.errors import InputError, first_line
from stage.limits.sizes import require_between

METADATA = '{"sharded_backend": "zarr"}'
LARGEST_COMMON = 1 << 28
"""Bytes; the published one has 631."""
LARGEST_STEP = (1 << 31) - 1
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


def common_files(dtype: str, step: int | None = None) -> dict[str, bytes]:
    """Both files by name; ``step`` is Adam's, None the benchmark's. A ``bf16`` checkpoint nests the optimizer one level
    deeper."""
    import torch  # takes a second or two, which a conversion spends beside its own work

    optimizer: dict[str, Any] = {"param_groups": [PARAM_GROUP if step is None else {**PARAM_GROUP, "step": step}]}
    common = io.BytesIO()
    torch.save({"optimizer": {"optimizer": optimizer} if dtype == "bf16" else optimizer}, common)
    return {"metadata.json": METADATA.encode(), "common.pt": common.getvalue()}


def fp32_weights_prefix(folder: Path) -> str:
    """How the FP32 weights' arrays of a Megatron zarr checkpoint begin: in a BF16 one they are the master copy.

    Raises InputError where ``folder`` is no such checkpoint.
    """
    if not (folder / "metadata.json").is_file():
        raise InputError(f"{folder}: not a Megatron zarr checkpoint (no metadata.json in it)")
    return MASTER_WEIGHTS if any(folder.glob(f"{MASTER_WEIGHTS}*")) else WEIGHTS


def adam_step(folder: Path) -> int | None:
    """Adam's step counter in ``common.pt``; None where there is no such file, as in the published BF16 tarball."""
    import torch

    path = folder / "common.pt"
    if not path.is_file():
        return None
    if path.stat().st_size > LARGEST_COMMON:
        raise InputError(f"{path}: {path.stat().st_size:,} bytes, more than any common.pt has")
    try:
        content = torch.load(path, weights_only=True)
        optimizer = content["optimizer"]
        groups = optimizer.get("optimizer", optimizer)["param_groups"]
        step = int(groups[0]["step"])
    except Exception as error:  # torch.load raises what it likes for a damaged file
        raise InputError(f"{path}: not a checkpoint's common.pt ({first_line(error)})") from error
    require_between(step, 0, LARGEST_STEP, f"{path}: Adam's step")
    return step
