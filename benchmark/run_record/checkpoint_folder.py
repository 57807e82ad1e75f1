"""The folders of a run's checkpoints, and the files in each besides the shards.

    RUN_DIR/checkpoints/step_00000064/   PyTorch DCP shards of weights and moments
                        progress.json    everything else (run_progress.py)
                        digests.md5      of all these files: python -m checksums verify reads it

A folder with its final name is whole: it is written under another name and renamed. Checkpoints that a run went back
behind, or found damaged, are never deleted:

    RUN_DIR/checkpoints/set_aside/001_loss_spike/step_00000064/
"""

import contextlib
import hashlib
import json
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.file_names import (
    DIGESTS_FILE,
    PROGRESS_FILE,
    RETIRED,
    SET_ASIDE_FOLDER,
    SHARD_METADATA,
    checkpoint_path,
    checkpoints_folder,
)
from benchmark.run_record.run_progress import Progress, progress_of
from foundation.disk_answers import entries_in, is_there
from foundation.errors import InputError
from foundation.file_formats.json_files import DAMAGED, LARGEST_JSON, read_bounded
from foundation.file_formats.md5_list import format_list, read_list
from foundation.outputs.digest import md5_file
from foundation.outputs.publish import PARTIAL, sync_to_disk, write_text

ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""Errors that say that a file is not there. Any other error of a disk says nothing about the file."""
MOST_NAMED = 8
"""Most damaged files that a message names."""
MOST_NAME_CHARACTERS = 60
"""Most characters of the reason in a folder's name; file systems allow 255."""


class DamagedCheckpoint(InputError):
    """Files of a checkpoint are missing or damaged."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, list(names)
        super().__init__(f"{folder}: {self.files()} damaged or missing; use another checkpoint")

    def files(self) -> str:
        """Name the damaged files, for messages."""
        remainder = f" and {len(self.names) - MOST_NAMED} more" if len(self.names) > MOST_NAMED else ""
        return ", ".join(self.names[:MOST_NAMED]) + remainder


def set_aside(run_dir: Path, steps: Sequence[int], *, why: str) -> Path | None:
    """Move checkpoints out of the way, so that a run resumes from an older one; return their new place.

    ``why``: a few words, which become part of their folder's name. One process calls this. The newest goes first: if
    the process is killed in between, the next start sees the older ones alone.
    """
    if not steps:
        return None
    parent = checkpoints_folder(run_dir) / SET_ASIDE_FOLDER
    parent.mkdir(exist_ok=True)
    numbers = [int(match[1]) for match in (re.match(r"(\d+)_", entry.name) for entry in parent.iterdir()) if match]
    words = re.sub(r"[^a-z0-9]+", "_", why.lower()).strip("_")[:MOST_NAME_CHARACTERS]
    folder = parent / f"{max(numbers, default=0) + 1:03d}_{words}"
    folder.mkdir()
    for number in sorted(steps, reverse=True):
        path = checkpoint_path(run_dir, number)
        path.rename(folder / path.name)
    return folder


def progress_as_json(progress: Progress) -> str:
    """Encode the progress as JSON that :func:`read_progress` reads."""
    return json.dumps(asdict(progress), indent=1) + "\n"


def progress_from_json(text: str | bytes) -> Progress:
    """Decode progress. Raises ValueError, TypeError or KeyError for text that :func:`progress_as_json` did not
    write."""
    return progress_of(json.loads(text))


def read_progress(folder: Path) -> Progress:
    """Return the progress stored in a checkpoint.

    Raises DamagedCheckpoint if it is missing or was changed, and OSError if the disk does not say.
    """
    path = folder / PROGRESS_FILE
    try:
        content = read_bounded(path, LARGEST_JSON)
    except (*ABSENT, InputError) as error:
        raise DamagedCheckpoint(folder, [PROGRESS_FILE]) from error
    try:
        listed = read_list(folder / DIGESTS_FILE)
    except (*ABSENT, InputError) as error:
        raise DamagedCheckpoint(folder, [DIGESTS_FILE]) from error
    try:
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != listed.get(PROGRESS_FILE):
            raise ValueError
        return progress_from_json(content)
    except DAMAGED as error:
        raise DamagedCheckpoint(folder, [PROGRESS_FILE]) from error


def publish_checkpoint(partial: Path, final: Path, shard_digests: Mapping[str, str], progress: str) -> None:
    """Complete a folder whose shards are written and synced, and give it its final name.

    ``shard_digests``: MD5 by file name, of the shards of all processes. A checkpoint that had the name before is
    retired once the new one is whole.
    """
    write_text(partial / PROGRESS_FILE, progress)
    other_digests = {name: md5_file(partial / name) for name in (PROGRESS_FILE, SHARD_METADATA)}
    write_text(partial / DIGESTS_FILE, format_list({**shard_digests, **other_digests}))
    if is_there(final):
        retire(final)
    partial.rename(final)
    sync_to_disk(final.parent)


def retire_old_checkpoints(run_dir: Path, *, keep: int, keep_every: int) -> None:
    """Retire all checkpoints but the ``keep`` newest and those at multiples of ``keep_every`` steps (0: no
    multiples)."""
    for steps in whole_checkpoints(run_dir)[:-keep]:
        if not (keep_every and steps % keep_every == 0):
            retire(checkpoint_path(run_dir, steps))


def retire_partial(run_dir: Path) -> None:
    """Retire the remains of killed or failed writes. One process calls this, while no checkpoint is being written."""
    for entry in entries_in(checkpoints_folder(run_dir)):
        if entry.name.endswith(PARTIAL):
            retire(Path(entry))


def retire(folder: Path) -> None:
    """Rename a folder so that it no longer counts; :func:`remove_retired` then removes it, which may take long."""
    number = 0
    while is_there(retired := folder.with_name(f"{folder.name}.{number}{RETIRED}")):
        number += 1
    folder.rename(retired)


def remove_retired(run_dir: Path) -> threading.Thread:
    """Begin to remove retired folders, a quarter of a million files perhaps, in a thread."""

    def remove() -> None:
        with contextlib.suppress(OSError):
            for entry in checkpoints_folder(run_dir).iterdir():
                if entry.name.endswith(RETIRED):
                    shutil.rmtree(entry, ignore_errors=True)

    thread = threading.Thread(target=remove, name="removes old checkpoints", daemon=True)
    thread.start()
    return thread
