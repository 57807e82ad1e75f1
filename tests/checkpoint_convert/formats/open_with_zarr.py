"""The reference's README, section "Checkpoint Zarr format": arrays of a converted checkpoint by plain zarr, 2 or 3.

python tests/checkpoint_convert/formats/open_with_zarr.py FOLDER    array, dtype and MD5 of its values, a line each

Both cannot be installed at once: the tests run it with the one at hand, a person with the other.
"""

import hashlib
import sys
from pathlib import Path
from typing import Any

import tensorstore  # noqa: F401  makes bfloat16 known to NumPy, as that section says; all that zarr 2 needs
import zarr


def open_with_zarr(layer_dir: str) -> Any:
    return zarr.open(layer_dir)[:]  # type: ignore[index]  # not a group of arrays


if __name__ == "__main__":
    if not zarr.__version__.startswith("2."):
        import checkpoint_convert.formats.zarr_bfloat16  # noqa: F401
    for metadata in sorted(Path(sys.argv[1]).glob("*/.zarray")):
        values = open_with_zarr(str(metadata.parent))
        print(metadata.parent.name, values.dtype, hashlib.md5(values.tobytes()).hexdigest())
