"""Zarr arrays: what is written is uncompressed bytes of its chunks, and what is no array is named."""

import json
import os
from pathlib import Path
from typing import Any

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


def test_a_file_system_that_cannot_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSYS is an error of its own kind to TensorStore."""
    create_array(tmp_path / "a", (2,), "float32", (2,))

    def fails(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("Failed to open: Function not implemented")

    monkeypatch.setattr("tensorstore.open", fails)
    with pytest.raises(InputError, match=r"a: cannot be opened .*Function not implemented"):
        open_array(tmp_path / "a")


def test_what_is_no_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none: array is missing"):
        open_array(tmp_path / "none")
    (tmp_path / ".zarray").write_text("{")
    with pytest.raises(InputError, match=r"\.zarray: .*truncated"):
        open_array(tmp_path)
    (tmp_path / ".zarray").unlink()
    os.mkfifo(tmp_path / ".zarray")
    with pytest.raises(InputError, match="zarray: pipe, not a regular file"):
        open_array(tmp_path)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"shape": [1] * 20_000, "chunks": [1] * 20_000}, "20,000 axes"),
        ({"shape": [-1, 3]}, "expected whole numbers"),
        ({"shape": [1 << 62, 3]}, "more than 1 EiB"),
        ({"shape": [2.5, 3]}, "expected whole numbers"),
        ({"shape": [None]}, "expected whole numbers"),
        ({"shape": 7}, "not a zarr array"),
        ({"chunks": [0, 3]}, "do not go together"),
        ({"chunks": [2]}, "do not go together"),
        ({"chunks": [2, 1 << 63]}, "more than 1 EiB"),
        ({"dtype": "<f99"}, "not a zarr array"),
        ({"compressor": {"id": "unheard of"}}, "not a zarr array"),
        ({"zarr_format": 9}, "not a zarr array"),
        ({"order": [1]}, "not a zarr array"),
    ],
)
def test_metadata_that_cannot_be_is_refused_in_a_line(fields: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    create_array(tmp_path / "a", (4, 3), "float32", (2, 3))
    path = tmp_path / "a" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    with pytest.raises(InputError, match=complaint) as error:
        open_array(tmp_path / "a")
    assert len(str(error.value)) < 500
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"\.zarray: "):
        open_array(tmp_path / "a")
