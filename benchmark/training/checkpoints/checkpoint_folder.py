"""Where a run's checkpoints lie, and what is in each besides its shards.

    RUN_DIR/checkpoints/step_00000064/   PyTorch DCP shards of weights and moments
                        progress.json    everything else (engine/run_progress.py)
                        digests.md5      of all these files: python -m checksums verify reads it

A folder that has its name is whole: it is written aside and renamed. What a run went back from, or found damaged, is
never deleted:

    RUN_DIR/checkpoints/set_aside/001_loss_spike/step_00000064/
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmark.training.engine.run_progress import Evaluation, Progress
from checkpoint_convert.formats.dcp_arrays import METADATA
from checksums.md5_list import format_list, read_list
from stage.digest import md5_file
from stage.errors import InputError
from stage.publish import sync_folder, write_text

PROGRESS = "progress.json"
DIGESTS = "digests.md5"
MOST_NAME_CHARACTERS = 60
"""Of the reason in a folder's name; file systems allow 255."""


def checkpoints_folder(run_dir: Path) -> Path:
    return run_dir / "checkpoints"


def checkpoint_path(run_dir: Path, steps: int) -> Path:
    return checkpoints_folder(run_dir) / f"step_{steps:08d}"


def whole_checkpoints(run_dir: Path) -> list[int]:
    """Steps of the checkpoints that are there, the oldest first."""
    folder = checkpoints_folder(run_dir)
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(match[1]) for match in (re.fullmatch(r"step_(\d+)", name) for name in names) if match)


def newest_checkpoint(run_dir: Path) -> int | None:
    """Steps of the newest whole checkpoint, None where there is none."""
    steps = whole_checkpoints(run_dir)
    return steps[-1] if steps else None


def set_aside(run_dir: Path, *, after: int, why: str) -> list[int]:
    """Move checkpoints of more than ``after`` steps out of the way, so that a run goes on from an older one.

    ``why``: a few words, which become part of their folder's name. Returns their steps, the oldest first. For one
    process, before any other looks at the checkpoints.
    """
    steps = [found for found in whole_checkpoints(run_dir) if found > after]
    _move_aside(run_dir, steps, why)
    return steps


def set_aside_one(run_dir: Path, steps: int, *, why: str) -> None:
    """Likewise the checkpoint of that many steps alone; nothing where there is none."""
    _move_aside(run_dir, [found for found in whole_checkpoints(run_dir) if found == steps], why)


def _move_aside(run_dir: Path, steps: Sequence[int], why: str) -> None:
    """The newest first: whoever is killed in between has left the older ones, and the next start sees only these."""
    if not steps:
        return
    everything = checkpoints_folder(run_dir) / "set_aside"
    everything.mkdir(exist_ok=True)
    numbers = [int(match[1]) for match in (re.match(r"(\d+)_", entry.name) for entry in everything.iterdir()) if match]
    words = re.sub(r"[^a-z0-9]+", "_", why.lower()).strip("_")[:MOST_NAME_CHARACTERS]
    place = everything / f"{max(numbers, default=0) + 1:03d}_{words}"
    place.mkdir()
    for number in sorted(steps, reverse=True):
        path = checkpoint_path(run_dir, number)
        path.rename(place / path.name)


def progress_as_json(progress: Progress) -> str:
    """What :func:`read_progress` reads."""
    return json.dumps(asdict(progress), indent=1) + "\n"


def read_progress(folder: Path) -> Progress:
    """The progress stored in a checkpoint. Raises InputError where it is missing or not what was written."""
    path = folder / PROGRESS
    try:
        content = path.read_bytes()
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != read_list(folder / DIGESTS).get(PROGRESS):
            raise ValueError(f"{DIGESTS} lists another sum")
        fields = json.loads(content)
        fields["evaluations"] = [Evaluation(**evaluation) for evaluation in fields["evaluations"]]
        return Progress(**fields)
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: missing or damaged ({error}); delete its folder to use an older one") from error


def publish_checkpoint(partial: Path, final: Path, shard_digests: Mapping[str, str], progress: str) -> None:
    """Complete a folder whose shards are written, and give it its name.

    ``shard_digests``: MD5 by file name, of the shards of all processes. What had the name before is replaced: it is of
    a run that went back to an older checkpoint.
    """
    (partial / PROGRESS).write_text(progress, encoding="utf-8")
    others = {name: md5_file(partial / name) for name in (PROGRESS, METADATA)}
    write_text(partial / DIGESTS, format_list({**shard_digests, **others}))
    sync_folder(partial)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


def remove_old_checkpoints(run_dir: Path, *, keep: int, keep_every: int) -> None:
    """Leave the ``keep`` newest, and those at multiples of ``keep_every`` steps unless that is 0."""
    for steps in whole_checkpoints(run_dir)[:-keep]:
        if not (keep_every and steps % keep_every == 0):
            shutil.rmtree(checkpoint_path(run_dir, steps))
