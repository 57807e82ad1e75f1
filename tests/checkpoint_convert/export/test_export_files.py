"""Exports: made once, gone on with after whatever stopped them, and published whole.

The mechanism itself is tested in tests/stage.
"""

import errno
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from checkpoint_convert.export.export_files import Export, ExportFile, HashingFile, run_export

from checksums.md5_list import digest_folder, read_list
from stage.errors import InputError
from stage.outputs.manifest import require_intact

NAMES = ("a", "b", "c")


def copy_file(name: str, source: Path, log: list[str], does: str, file: IO[bytes]) -> None:
    """Write the content of the source's file of that name."""
    log.append(name)
    file.write((source / name).read_bytes())
    if does == "full disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if does == "full within torch":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HashingFile, "write", _full)
            torch.save(torch.ones(1 << 20), file)


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    for name in NAMES:
        (tmp_path / "source" / name).write_bytes(name.encode() * 10)
    return tmp_path


def export(
    place: Path, log: list[str], *, b_does: str = "", workers: int = 1, force: bool = False, **options: Any
) -> int | None:
    files = [
        ExportFile(name, partial(copy_file, name, place / "source", log, b_does if name == "b" else ""), 10)
        for name in NAMES
    ]

    def small_files(sizes: Mapping[str, int]) -> dict[str, bytes]:
        return {"inner/index": str(sorted(sizes.items())).encode()}

    job = Export("test", options, place / "source", NAMES, (), (), files, small_files)
    return run_export(job, place / "out", workers=workers, force=force)


def require_whole(place: Path) -> None:
    listed = read_list(place / "out.md5")
    assert digest_folder(place / "out") == listed
    assert listed.keys() == {*NAMES, "inner/index"}
    assert all((place / "out" / name).read_bytes() == (place / "source" / name).read_bytes() for name in NAMES)
    assert require_intact(place / "out") is not None
    assert {path.name for path in place.iterdir()} == {"source", "out", "out.md5", "out.manifest.json"}


def test_it_is_made_once(place: Path) -> None:
    log: list[str] = []
    written = export(place, log, workers=2)
    assert written == sum(path.stat().st_size for path in (place / "out").rglob("*") if path.is_file())
    require_whole(place)
    assert export(place, log) is None
    assert sorted(log) == list(NAMES)
    with pytest.raises(InputError, match="made otherwise \\(heads is 4, not None\\)"):
        export(place, log, heads=4)
    assert export(place, log, force=True, heads=4)
    require_whole(place)
    with pytest.raises(InputError, match="--workers 0: expected 1 to"):
        export(place, log, workers=0)


@pytest.mark.parametrize("fault", ["full disk", "full within torch"])
def test_after_a_full_disk_it_goes_on(fault: str, place: Path) -> None:
    with pytest.raises((OSError, InputError), match="No space left on device"):
        export(place, [], b_does=fault)
    assert not (place / "out").exists()
    log: list[str] = []
    assert export(place, log)
    assert "b" in log
    assert "a" not in log
    require_whole(place)
