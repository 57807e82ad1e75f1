"""What is copied first of a checkpoint elsewhere, and its chunks, whatever they are packed by."""

from pathlib import Path

import numpy as np
import pytest
import tensorstore as ts

from checkpoint_convert.formats.zarr_arrays import read_metadata
from checkpoint_convert.remote.remote_paxml import RemoteSource, copy_skeleton, require_json
from stage.errors import InputError
from stage.remote.object_address import parse_address
from stage.remote.object_folder import ObjectFolder
from tests.stage.remote.faulty_server import FaultyServer
from tests.support import command

VALUES = np.arange(30, dtype=np.float32).reshape(5, 6) - 7


def opened(server: FaultyServer, records: Path) -> ObjectFolder:
    return ObjectFolder(parse_address(f"{server.url}/ckpt"), records, readers=2)


@pytest.mark.parametrize("packing", [None, {"id": "gzip", "level": 1}, {"id": "zstd", "level": 1}, {"id": "blosc"}])
@pytest.mark.parametrize("separator", [".", "/"])
def test_chunks_are_unpacked(packing: dict[str, object] | None, separator: str, tmp_path: Path) -> None:
    metadata = {"shape": [5, 6], "chunks": [2, 4], "dtype": "<f4", "compressor": packing}
    metadata["dimension_separator"] = separator
    spec = {"driver": "zarr", "kvstore": f"file://{tmp_path}/files/a/", "metadata": metadata}
    ts.open(spec, create=True).result().write(VALUES).result()
    with FaultyServer(tmp_path / "files") as server:
        objects = opened(server, tmp_path / "records")
        path = tmp_path / "files" / "a"
        source = RemoteSource(path, (2, 4), read_metadata(path), objects, False)
        found = np.empty((4, 3), np.float32)
        source.read((slice(1, 5), slice(2, 5)), found)
    np.testing.assert_array_equal(found, VALUES[1:5, 2:5])


def test_a_missing_chunk_is_zeros_only_where_it_was_said(tmp_path: Path) -> None:
    (tmp_path / "files" / "a").mkdir(parents=True)
    metadata = {"dtype": "<f4", "order": "C", "filters": None, "compressor": None}
    with FaultyServer(tmp_path / "files") as server:
        objects, found = opened(server, tmp_path / "records"), np.ones((2, 2), np.float32)
        box = (slice(0, 2), slice(0, 2))
        RemoteSource(tmp_path / "a", (2, 2), metadata, objects, True).read(box, found)
        assert found.tolist() == [[0, 0], [0, 0]]
        with pytest.raises(InputError, match=r"a/0\.0: chunk is missing"):
            RemoteSource(tmp_path / "a", (2, 2), metadata, objects, False).read(box, found)


def test_only_metadata_and_counters_are_copied(tmp_path: Path) -> None:
    sizes = ["--layers", 2, "--hidden", 6, "--heads", 2, "--vocab", 20]
    made = command("checkpoint_convert", "random-paxml", "--output", tmp_path / "files", "--seed", 1, *sizes)
    assert made.returncode == 0, made.stderr
    with FaultyServer(tmp_path / "files") as server:
        skeleton = copy_skeleton(opened(server, tmp_path / "records"), tmp_path / "source")
        inode = skeleton.stat().st_ino
        assert copy_skeleton(opened(server, tmp_path / "records"), tmp_path / "source").stat().st_ino == inode
    copied = {str(path.relative_to(skeleton)): path.read_bytes() for path in skeleton.rglob("*") if path.is_file()}
    small = [path for path in (tmp_path / "files").rglob("*") if path.name == ".zarray" or path.parent.name == "step"]
    assert len(small) > 48
    for path in small:
        assert copied[str(path.relative_to(tmp_path / "files"))] == path.read_bytes()
    assert not any(name.startswith("mdl_vars") and not name.endswith(".zarray") for name in copied)
    assert "http://127.0.0.1" in (tmp_path / "source.json").read_text()


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b"<html>", b"", b"\xff"])
def test_what_is_no_json_is_told_from_it(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting|decode"):
        require_json(content)
