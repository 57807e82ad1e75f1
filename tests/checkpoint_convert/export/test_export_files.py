"""Exports: made once, gone on with after whatever stopped them, published whole, and never over somebody's files.

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

from checkpoint_convert.export import export_files
from checkpoint_convert.export.export_files import Export, ExportFile, HashingFile, run_export
from checksums.md5_list import digest_folder, read_list
from stage.errors import InputError
from stage.outputs.manifest import require_intact
from stage.outputs.publish import partial_path


def copy_file(name: str, source: Path, log: Path, does: str, file: IO[bytes]) -> None:
    """Write the content of the source's file of that name, and note in ``log`` that it was done."""
    with log.open("a") as lines:
        lines.write(f"{name} {os.getpid()}\n")
    file.write((source / name).read_bytes())
    if does == "full disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if does == "full within torch":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HashingFile, "write", _full)
            torch.save(torch.ones(1 << 20), file)
    if does == "killed":
        os._exit(9)
    if does == "changed":
        (source / "a").write_bytes(b"another")


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


NAMES = ("a", "b", "c")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    for name in NAMES:
        (tmp_path / "source" / name).write_bytes(name.encode() * 10)
    return tmp_path


def export(place: Path, *, b_does: str = "", workers: int = 1, force: bool = False, **options: Any) -> int | None:
    files = [
        ExportFile(name, partial(copy_file, name, place / "source", place / "log", b_does if name == "b" else ""), 10)
        for name in NAMES
    ]

    def small_files(sizes: Mapping[str, int]) -> dict[str, bytes]:
        return {"inner/index": str(sorted(sizes.items())).encode()}

    job = Export("test", options, place / "source", NAMES, (), (), place / "out")
    return run_export(job, files, small_files, workers=workers, force=force)


def written(place: Path) -> list[str]:
    """Return the files that were written since the last call."""
    lines = [line.split()[0] for line in (place / "log").read_text().splitlines()] if (place / "log").exists() else []
    (place / "log").unlink(missing_ok=True)
    return lines


def require_whole(place: Path) -> None:
    listed = read_list(place / "out.md5")
    assert digest_folder(place / "out") == listed
    assert listed.keys() == {*NAMES, "inner/index"}
    assert all((place / "out" / name).read_bytes() == (place / "source" / name).read_bytes() for name in NAMES)
    assert require_intact(place / "out") is not None
    assert {path.name for path in place.iterdir()} - {"log"} == {"source", "out", "out.md5", "out.manifest.json"}


def test_it_is_made_once(place: Path) -> None:
    assert export(place) == sum(path.stat().st_size for path in (place / "out").rglob("*") if path.is_file())
    require_whole(place)
    assert export(place) is None
    assert written(place) == list(NAMES)
    with pytest.raises(InputError, match="made otherwise \\(heads is 4, not None\\)"):
        export(place, heads=4)
    assert export(place, force=True, heads=4)
    assert written(place) == list(NAMES)
    require_whole(place)


@pytest.mark.parametrize("fault", ["full disk", "full within torch"])
def test_after_a_full_disk_it_goes_on(fault: str, place: Path) -> None:
    with pytest.raises((OSError, InputError), match="No space left on device"):
        export(place, b_does=fault)
    assert not (place / "out").exists()
    assert written(place) == ["a", "b"]
    assert export(place)
    assert written(place) == ["b", "c"]
    require_whole(place)


def test_a_source_that_changes_is_not_published(place: Path) -> None:
    with pytest.raises(InputError, match=r"not published, for an input changed meanwhile: the content of .*source"):
        export(place, b_does="changed")
    assert not (place / "out").exists()
    with pytest.raises(InputError, match="begun for another output"):
        export(place)
    assert export(place, force=True)
    require_whole(place)


def test_notes_of_the_users_are_not_deleted_by_force(place: Path) -> None:
    assert export(place)
    (place / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="somebody changed it since"):
        export(place, force=True, heads=4)
    assert (place / "out" / "notes.txt").read_text() == "mine"


def test_a_list_of_the_users_is_not_overwritten(place: Path) -> None:
    (place / "out.md5").write_text(f"{'0' * 32}  published\n")
    for force in (False, True):
        with pytest.raises(InputError, match=r"out\.md5"):
            export(place, force=force)
    assert (place / "out.md5").read_text().endswith("published\n")


def test_a_file_among_the_pieces_is_not_published(place: Path) -> None:
    with pytest.raises((OSError, InputError), match="No space"):
        export(place, b_does="full disk")
    (partial_path(place / "out") / "pieces" / "mine").write_text("")
    with pytest.raises(InputError, match="pieces/mine: no file of this output"):
        export(place)


@pytest.mark.slow
def test_several_processes_write_and_one_may_be_killed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "BYTES_PER_WORKER", 1)
    with pytest.raises(InputError, match="a worker was killed"):
        export(place, b_does="killed", workers=2)
    pids = {line.split()[1] for line in (place / "log").read_text().splitlines()}
    assert str(os.getpid()) not in pids
    written(place)
    assert export(place)
    assert "b" in written(place)
    require_whole(place)


def test_numbers_of_workers_that_do_not_exist_are_refused(place: Path) -> None:
    with pytest.raises(InputError, match="--workers 0: expected 1 to"):
        export(place, workers=0)
