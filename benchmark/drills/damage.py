"""What happens to a run's files while no process of it runs."""

import shutil
from collections.abc import Callable
from pathlib import Path

from benchmark.drills.faults import Damage, DamageKind
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path, checkpoints_folder, newest_checkpoint

PAGE = 4096
TOKENS_BIT = 0x40
"""In the upper byte of a token of two bytes: the id is far beyond any small vocabulary."""


def damage_files(damage: Damage, run_dir: Path, data: Path) -> None:
    """``data``: prefix of the training set that may be damaged."""
    KINDS[damage.kind](run_dir, data)


def flip_bit(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def _newest(run_dir: Path) -> Path | None:
    steps = newest_checkpoint(run_dir)
    return None if steps is None else checkpoint_path(run_dir, steps)


def _shard(run_dir: Path) -> Path | None:
    """The largest file of the newest checkpoint."""
    folder = _newest(run_dir)
    return None if folder is None else max(folder.iterdir(), key=lambda path: path.stat().st_size)


def _flip_newest(run_dir: Path, data: Path) -> None:
    if (shard := _shard(run_dir)) is not None:
        flip_bit(shard, shard.stat().st_size // 2)


def _cut_newest(run_dir: Path, data: Path) -> None:
    if (shard := _shard(run_dir)) is not None:
        with shard.open("r+b") as file:
            file.truncate(shard.stat().st_size // 2)


def _delete_newest(run_dir: Path, data: Path) -> None:
    if (folder := _newest(run_dir)) is not None:
        shutil.rmtree(folder)


def _delete_all(run_dir: Path, data: Path) -> None:
    shutil.rmtree(checkpoints_folder(run_dir), ignore_errors=True)


def _flip_data(run_dir: Path, data: Path) -> None:
    """A bit of every token in two pages: some sample of a short run has one of them."""
    with data.with_name(f"{data.name}.bin").open("r+b") as file:
        page = bytearray(file.read(2 * PAGE))
        page[1::2] = bytes(byte ^ TOKENS_BIT for byte in page[1::2])
        file.seek(0)
        file.write(page)


def _remove_exit(run_dir: Path, data: Path) -> None:
    (run_dir / "exit").unlink(missing_ok=True)


KINDS: dict[DamageKind, Callable[[Path, Path], None]] = {
    "flip newest": _flip_newest,
    "cut newest": _cut_newest,
    "delete newest": _delete_newest,
    "delete all": _delete_all,
    "flip data": _flip_data,
    "remove exit": _remove_exit,
}
