"""Zarr arrays: what is written is uncompressed bytes of its chunks, and what is no array is named."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from checkpoint_convert.formats.zarr_arrays import create_array, open_array
from stage.errors import InputError


def test_array_is_files_of_its_chunks(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    create_array(tmp_path / "a", (4, 3), "float32", (2, 3)).write(values).result()
    assert (tmp_path / "a" / "1.0").read_bytes() == values[2:].tobytes()
    metadata = json.loads((tmp_path / "a" / ".zarray").read_text())
    assert (metadata["dtype"], metadata["chunks"], metadata["compressor"]) == ("<f4", [2, 3], None)
    np.testing.assert_array_equal(open_array(tmp_path / "a", readers=1).read().result(), values)


def test_same_array_is_opened_again_and_another_is_not(tmp_path: Path) -> None:
    create_array(tmp_path / "a", (2,), "bfloat16", (2,)).write(np.ones(2, ml_dtypes.bfloat16)).result()
    again = create_array(tmp_path / "a", (2,), "bfloat16", (2,))
    assert again.read().result().tolist() == [1, 1]
    with pytest.raises(ValueError, match="shape"):
        create_array(tmp_path / "a", (3,), "bfloat16", (2,))


def test_what_is_no_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none: array is missing"):
        open_array(tmp_path / "none")
    (tmp_path / ".zarray").write_text("{")
    with pytest.raises(InputError, match="not a zarr array"):
        open_array(tmp_path)
