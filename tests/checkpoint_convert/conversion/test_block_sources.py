"""Chunks of the source are read whole or refused, and none may be missing."""

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest
import tensorstore as ts

from checkpoint_convert.conversion.block_sources import (
    BlockSource,
    PlainSource,
    StoredSource,
    open_source,
    require_chunks,
)
from checkpoint_convert.conversion.resuming.source_files import SourceFiles
from stage.errors import InputError

WHOLE = (slice(0, 100), slice(0, 30))


@pytest.mark.parametrize("packed", [True, False])
def test_chunks_of_the_wrong_size_are_refused(packed: bool, tmp_path: Path) -> None:
    values = np.arange(3000, dtype="<f4")
    read = np.empty((100, 30), np.float32)

    def write(data: bytes) -> PlainSource:
        (tmp_path / "0.0").write_bytes(gzip.compress(data) if packed else data)
        return PlainSource(tmp_path, (100, 30), ".", packed, SourceFiles(tmp_path.parent, [tmp_path.name]))

    source = write(values.tobytes())
    source.read(WHOLE, read)
    np.testing.assert_array_equal(read, values.reshape(100, 30))
    part = np.empty((7, 30), np.float32)
    source.read((slice(3, 10), slice(0, 30)), part)
    np.testing.assert_array_equal(part, read[3:10])
    for data in (values.tobytes()[:-4], values.tobytes() + b"more", b""):
        source = write(data)
        with pytest.raises(ValueError, match=r"chunk 0\.0: it (does not unpack to 12000 bytes|has \d+ bytes)"):
            source.read(WHOLE, read)


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize(
    ("compressor", "kind"),
    [(None, PlainSource), ({"id": "gzip", "level": 1}, PlainSource), ({"id": "zstd", "level": 1}, StoredSource)],
    ids=["plain", "gzip", "zstd"],
)
def test_any_box_of_any_chunks(
    compressor: dict[str, object] | None, kind: type[PlainSource | StoredSource], separator: str, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).standard_normal((5, 20, 33)).astype(np.float32)
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(tmp_path / "a")},
        "metadata": {"dtype": "<f4", "shape": [5, 20, 33], "chunks": [2, 8, 33], "compressor": compressor},
        "create": True,
    }
    spec["metadata"] |= {"dimension_separator": separator}  # type: ignore[operator]
    ts.open(spec).result().write(values).result()

    def opened(*, zeros: bool = False) -> BlockSource:
        files = SourceFiles(tmp_path, ["a"])
        return open_source(tmp_path / "a", (5, 20, 33), like="nothing", readers=1, files=files, missing_are_zeros=zeros)

    source = opened()
    assert isinstance(source, kind)
    for box in (
        (slice(0, 5), slice(0, 20), slice(0, 33)),
        (slice(2, 4), slice(8, 16), slice(0, 33)),  # one whole chunk
        (slice(1, 5), slice(3, 17), slice(5, 6)),
    ):
        found = np.empty([part.stop - part.start for part in box], np.float32)
        source.read(box, found)
        np.testing.assert_array_equal(found, values[box])
    require_chunks(tmp_path / "a", (5, 20, 33), mend="mend it")
    lost = tmp_path / "a" / separator.join("120")
    lost.unlink()
    with pytest.raises(InputError, match=f"a: chunk {re.escape(separator.join('120'))} is missing; mend it"):
        require_chunks(tmp_path / "a", (5, 20, 33), mend="mend it")
    require_chunks(tmp_path / "a", (5, 16, 33), mend="mend it")  # the lost one is not kept
    box = (slice(2, 4), slice(16, 20), slice(0, 33))
    for gone in (source, opened()):  # while it is converted, and before
        with pytest.raises(InputError, match="is missing; the checkpoint is not whole"):
            gone.read(box, np.ones((2, 4, 33), np.float32))
    opened(zeros=True).read(box, zeros := np.ones((2, 4, 33), np.float32))
    assert not zeros.any()
    os.mkfifo(lost)
    with pytest.raises(InputError, match="not a regular file"):
        opened().read(box, zeros)
    lost.unlink()
    changed = tmp_path / "a" / separator.join("000")
    changed.write_bytes(changed.read_bytes())
    with pytest.raises(InputError, match="changed while it was converted"):
        source.read((slice(0, 2), slice(0, 8), slice(0, 33)), np.ones((2, 8, 33), np.float32))
