"""The real zarr package opens what the conversion writes, BF16 included."""

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from zarr.dtype import DataTypeValidationError

from checkpoint_convert.formats.zarr_bfloat16 import BFloat16
from checkpoint_convert.inspection.inspect_checkpoint import inspect_checkpoint

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_plain_zarr_reads_a_converted_checkpoint(megatron: dict[str, Path]) -> None:
    script = REPOSITORY / "tests/checkpoint_convert/formats/open_with_zarr.py"
    done = subprocess.run(
        [sys.executable, script, megatron["bf16"]], capture_output=True, text=True, env={"PYTHONPATH": str(REPOSITORY)}
    )
    assert done.returncode == 0, done.stderr
    ours = inspect_checkpoint(megatron["bf16"], md5=True).arrays
    assert done.stdout.splitlines() == [f"{array.name} {array.dtype} {array.md5}" for array in ours]
    assert sum(" bfloat16 " in line for line in done.stdout.splitlines()) == 16


def test_the_dtype_is_bf16_and_no_other() -> None:
    dtype = BFloat16.from_native_dtype(np.dtype(ml_dtypes.bfloat16))
    assert BFloat16.from_json(dtype.to_json(zarr_format=2), zarr_format=2) == dtype
    assert BFloat16.from_json("bfloat16", zarr_format=3) == dtype
    assert dtype.from_json_scalar(dtype.to_json_scalar(1.5, zarr_format=2), zarr_format=2) == 1.5
    with pytest.raises(DataTypeValidationError, match="float16: expected bfloat16"):
        BFloat16.from_native_dtype(np.dtype(np.float16))
    with pytest.raises(DataTypeValidationError, match="<f4"):
        BFloat16.from_json({"name": "<f4", "object_codec_id": None}, zarr_format=2)
