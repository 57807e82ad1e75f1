"""Read and write the two small files beside the arrays, ``metadata.json`` and ``common.pt`` (docs/facts/reference.md
f.3)."""

import io
from pathlib import Path

from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, WEIGHTS
from checksums.common_file import COMMON, METADATA, PARAM_GROUP, common_content, plain_common
from stage.errors import InputError, first_line
from stage.sizes import require_between

CONTENT = '{"sharded_backend": "zarr"}'
BENCHMARK_STEP: int = PARAM_GROUP["step"]
"""Adam's step that the reference's converter writes for every checkpoint."""
LARGEST_STEP = (1 << 31) - 1


def common_files(dtype: str, step: int = BENCHMARK_STEP) -> dict[str, bytes]:
    """Return both files by name; ``step`` is Adam's."""
    import torch  # takes a second or two, which a conversion spends beside its own work

    common = io.BytesIO()
    torch.save(common_content({**PARAM_GROUP, "step": step}, bf16=dtype == "bf16"), common)
    return {METADATA: CONTENT.encode(), COMMON: common.getvalue()}


def fp32_weights_prefix(folder: Path) -> str:
    """Return the prefix of the FP32 weights' arrays of a Megatron zarr checkpoint: the master copy of a BF16 one.

    Raises InputError if ``folder`` is no such checkpoint.
    """
    if not (folder / METADATA).is_file():
        raise InputError(f"{folder}: not a Megatron zarr checkpoint (no metadata.json in it)")
    return MASTER_WEIGHTS if any(folder.glob(f"{MASTER_WEIGHTS}*")) else WEIGHTS


def adam_step(folder: Path) -> int | None:
    """Return Adam's step in ``common.pt``; None if there is no such file, as in the published BF16 tarball.

    Raises InputError if the file is damaged, or holds more than plain values. Megatron-Core's files have the same form.
    """
    path = folder / COMMON
    if not path.is_file():
        return None
    try:
        optimizer = plain_common(path)["optimizer"]
        step = optimizer.get("optimizer", optimizer)["param_groups"][0]["step"]
        if type(step) is not int:
            raise ValueError(f"step {step!r:.40}")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a checkpoint's common.pt ({first_line(error)})") from error
    require_between(step, 0, LARGEST_STEP, f"{path}: Adam's step")
    return step
