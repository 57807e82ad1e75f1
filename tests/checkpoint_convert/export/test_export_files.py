"""Exports: gone on with after whatever stopped them, published whole, and never made of two sources."""

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_convert.export import export_files
from checkpoint_convert.export.export_files import Export, HashingFile, Made, Unfinished, run_export
from checksums.md5_list import read_list
from stage.errors import InputError
from stage.manifest import require_intact
from stage.publish import partial_path


@dataclass(frozen=True)
class Copy:
    """Writes what the source file of its name holds, and in ``log`` that it did."""

    name: str
    source: Path
    log: Path
    does: str = ""

    @property
    def bytes(self) -> int:
        return 10

    def write(self, file: HashingFile) -> None:
        with self.log.open("a") as log:
            log.write(f"{self.name} {os.getpid()}\n")
        file.write((self.source / self.name).read_bytes())
        if self.does == "full disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out/b")
        if self.does == "full within torch":
            with Path("/dev/full").open("wb", buffering=0) as file._file:  # type: ignore[assignment]
                torch.save([1], file)  # type: ignore[arg-type]
        if self.does == "damaged":
            raise InputError("chunk 3 cannot be read")
        if self.does == "killed":
            os._exit(9)
        if self.does == "changed":
            (self.source / "a").write_bytes(b"another")


NAMES = ("a", "b", "c")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    for name in NAMES:
        (tmp_path / "source" / name).write_bytes(name.encode() * 10)
    return tmp_path


def run(place: Path, *, b_does: str = "", workers: int = 1, force: bool = False, **options: Any) -> int | None:
    files = [Copy(name, place / "source", place / "log", b_does if name == "b" else "") for name in NAMES]
    export = Export("test", options, place / "source", place / "out", ())

    def write_small_files(folder: Path, made: Mapping[str, Made]) -> None:
        (folder / "index").write_text(json.dumps({name: file.md5 for name, file in made.items()}))

    return run_export(export, files, write_small_files, workers=workers, force=force)


def written(place: Path) -> list[str]:
    """What was written since this was asked last."""
    lines = [line.split()[0] for line in (place / "log").read_text().splitlines()] if (place / "log").exists() else []
    (place / "log").unlink(missing_ok=True)
    return lines


def require_whole(place: Path) -> None:
    assert {path.name for path in (place / "out").iterdir()} == {*NAMES, "index"}
    assert all((place / "out" / name).read_bytes() == (place / "source" / name).read_bytes() for name in NAMES)
    assert read_list(place / "out.md5").keys() == {*NAMES, "index"}
    assert {name: read_list(place / "out.md5")[name] for name in NAMES} == json.loads((place / "out/index").read_text())
    assert require_intact(place / "out") is not None
    assert {path.name for path in place.iterdir()} - {"log"} == {"source", "out", "out.md5", "out.manifest.json"}


def test_it_is_made_once(place: Path) -> None:
    assert run(place) == sum(path.stat().st_size for path in (place / "out").iterdir())
    require_whole(place)
    assert run(place) is None
    assert written(place) == list(NAMES)
    with pytest.raises(InputError, match="made from another source or options"):
        run(place, heads=4)
    assert run(place, force=True, heads=4)
    assert written(place) == list(NAMES)


@pytest.mark.parametrize("fault", ["full disk", "full within torch"])
def test_after_a_full_disk_it_goes_on(fault: str, place: Path) -> None:
    with pytest.raises(Unfinished, match=r"out.*/b: No space left on device; make room and run the command again"):
        run(place, b_does=fault)
    assert not (place / "out").exists()
    assert not (partial_path(place / "out") / "b").exists()
    assert written(place) == ["a", "b"]
    assert run(place)
    assert written(place) == ["b", "c"]
    require_whole(place)


@pytest.mark.parametrize("damage", [b"", b"\0" * 10, None], ids=["emptied", "zeroed", "gone"])
def test_a_finished_file_that_a_crash_damaged_is_made_again(place: Path, damage: bytes | None) -> None:
    with pytest.raises(Unfinished):
        run(place, b_does="full disk")
    written(place)
    left = partial_path(place / "out") / "a"
    left.unlink() if damage is None else left.write_bytes(damage)
    assert run(place)
    assert written(place) == list(NAMES)
    require_whole(place)


@pytest.mark.parametrize("change", ["options", "source", "note"])
def test_what_was_begun_of_something_else_is_not_gone_on_with(place: Path, change: str) -> None:
    with pytest.raises(Unfinished):
        run(place, b_does="full disk")
    written(place)
    if change == "source":
        (place / "source" / "c").write_bytes(b"C" * 10)
    if change == "note":
        (partial_path(place / "out") / ".export" / "purpose.json").unlink()
    options: dict[str, Any] = {"heads": 4} if change == "options" else {}
    assert run(place, **options)
    assert written(place) == list(NAMES)
    require_whole(place)


def test_a_source_that_was_moved_is_the_same(place: Path) -> None:
    with pytest.raises(Unfinished):
        run(place, b_does="full disk")
    written(place)
    (place / "source").rename(place / "moved")
    (place / "source").symlink_to("moved")
    assert run(place)
    assert written(place) == ["b", "c"]


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_the_users_is_not_taken_for_an_unfinished_export(kind: str, place: Path) -> None:
    partial = partial_path(place / "out")
    (place / "mine").mkdir()
    (place / "mine" / "notes").write_text("the user's")
    if kind == "folder":
        (place / "mine").rename(partial)
    elif kind == "file":
        partial.write_text("the user's")
    else:
        partial.symlink_to("mine")
    with pytest.raises(InputError, match=r"out.partial: not made by this command; remove it or choose another"):
        run(place)
    assert (partial if kind == "file" else partial / "notes").read_text() == "the user's"


def test_force_goes_on_where_force_was_stopped(place: Path) -> None:
    assert run(place, heads=4)
    before = {path.name: path.stat().st_ino for path in (place / "out").iterdir()}
    with pytest.raises(Unfinished):
        run(place, b_does="full disk", force=True)
    assert {path.name: path.stat().st_ino for path in (place / "out").iterdir()} == before
    written(place)
    assert run(place, force=True)
    assert written(place) == ["b", "c"]
    require_whole(place)


@pytest.mark.parametrize(
    ("fault", "complaint"), [("damaged", "chunk 3"), ("changed", "source/a: changed while it was converted")]
)
def test_a_source_at_fault_leaves_nothing(place: Path, fault: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        run(place, b_does=fault)
    assert {path.name for path in place.iterdir()} == {"source", "log"}


def test_nothing_is_left_where_nothing_was_finished(place: Path) -> None:
    (place / "source" / "a").unlink()
    with pytest.raises(FileNotFoundError):
        run(place)
    assert {path.name for path in place.iterdir()} == {"source", "log"}


@pytest.mark.slow
def test_several_processes_write_and_one_may_be_killed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "BYTES_PER_WORKER", 1)
    with pytest.raises(Unfinished, match="a worker was killed"):
        run(place, b_does="killed", workers=2)
    done = [path.name for path in (partial_path(place / "out") / ".export").glob("*.json")]
    again = {*NAMES} - {name.removesuffix(".json") for name in done}
    written(place)
    assert run(place, workers=2)
    pids = {line.split()[1] for line in (place / "log").read_text().splitlines()}
    assert str(os.getpid()) not in pids
    assert {*written(place)} == again
    require_whole(place)


def test_numbers_of_workers_that_do_not_exist_are_refused(place: Path) -> None:
    with pytest.raises(InputError, match="--workers 0: expected 1 to"):
        run(place, workers=0)
