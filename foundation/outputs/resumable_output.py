"""An output that is made in parts, by one process or by several, and appears whole or not at all.

All long work is done this way: tokenising input files, converting chunks, exporting or fetching files. While the output
is made it lies in OUTPUT.partial:

recipe.json    everything the output depends on; a process with another recipe is refused, and told the difference
journal/       a file for each process; a line for each part that it has finished: name, bytes, MD5, facts
pieces/        the finished parts, under their names
writing/       parts that are being written, each under a name that no other process uses
publish.json   the manifest and the remaining renames, once publishing has begun

No lock is needed. A part is renamed to its place when it is whole and on the disk, and counts when the journal and the
disk agree on it. So processes that are killed, or started twice, lose their own work and nothing else.
"""

import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from foundation.disk_answers import is_there, name_is_taken
from foundation.errors import InputError
from foundation.file_formats.json_files import as_json, read_json
from foundation.outputs.lock import only_one_in
from foundation.outputs.manifest import (
    Manifest,
    Recipe,
    Source,
    made_by,
    manifest_path,
    read_manifest,
    record_of,
    record_problem,
)
from foundation.outputs.output_parts import (
    JOURNAL,
    PARTS,
    PUBLISH,
    RECIPE,
    WRITING,
    NewPart,
    OutputPart,
    finished_parts,
    journalled_parts,
    new_name,
    remove_left_files,
)
from foundation.outputs.publication import Publication, is_taken, publish_pending, remove_partial
from foundation.outputs.publish import PARTIAL, partial_path, sync_all, sync_folder, unique_partial, walked, write_text
from foundation.outputs.shards import Shard


class ResumableOutput:
    """One process's access to OUTPUT.partial. Threads may share it, and so may processes forked from this one."""

    def __init__(self, output: Path, recipe: Recipe) -> None:
        """Open the folder. Raises FileNotFoundError if the folder has been published or removed."""
        self.output, self.recipe, self.folder = output, recipe, partial_path(output)
        self._identity = self._folder_identity()
        """Another process may make a new folder of the same name after publication."""
        self._token = secrets.token_hex(8)
        self._started = time.monotonic()
        self.done = finished_parts(self.folder)
        """Finished parts by name; parts of other processes as of the last look."""

    def _folder_identity(self) -> tuple[int, int]:
        """Return inode and time of the recipe; an inode alone is given to a new file at once."""
        status = (self.folder / RECIPE).stat()
        return status.st_ino, status.st_mtime_ns

    def path(self, name: str) -> Path:
        """Return the path of the finished part ``name``."""
        return self.folder / PARTS / name

    def new_path(self) -> Path:
        """Return a path to write a part to that no other process uses."""
        return self.folder / WRITING / new_name()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the ``names`` that are not finished, in order."""
        return [name for name in names if name not in self.done]

    def add(self, parts: Sequence[NewPart]) -> None:
        """Sync written parts to the disk, give them their names and note them; many parts together cost one wait.

        Raises OSError if the disk refuses, InputError if the folder is gone.
        """
        journal = self.folder / JOURNAL / f"{self._token}-{os.getpid()}.jsonl"  # a forked process has its own
        try:
            sync_all(part.path for part in parts)
            lines = b""
            for part in parts:
                status = self._rename(part).stat()
                finished = OutputPart(part.name, status.st_size, part.md5, status.st_ctime_ns, part.facts)
                lines += msgspec.json.encode(finished) + b"\n"
                self.done[part.name] = finished
            with journal.open("ab") as file:
                file.write(lines)  # a line that a full disk cuts short does not count, and its part is made again
        except FileNotFoundError:  # no other process removes this process's file
            raise _gone(self.folder) from None

    def _rename(self, part: NewPart) -> Path:
        """Give a part its name and return its path.

        ``pieces/`` itself is never made again: if it is missing, it has been published, and FileNotFoundError is
        raised.
        """
        path = self.path(part.name)
        try:
            return part.path.rename(path)
        except FileNotFoundError:
            for parent in reversed(Path(part.name).parents[:-1]):
                self.path(str(parent)).mkdir(exist_ok=True)
            return part.path.rename(path)

    def reload(self) -> None:
        """Look again for parts that other processes have finished."""
        self.done = finished_parts(self.folder)

    def discard(self) -> None:
        """Remove OUTPUT.partial, from which no output can be made."""
        remove_partial(self.folder)

    def publish(
        self, outputs: Mapping[Path, tuple[Path, str | None]], inputs_now: Sequence[Source], facts: Mapping[str, Any]
    ) -> Manifest:
        """Give ``outputs`` their final names, write the manifest, and remove the folder.

        ``outputs``: by final path, which lies in OUTPUT's folder: the present path below OUTPUT.partial and the MD5 (of
        a folder: of its list of sums). ``inputs_now``: the inputs at the end. Raises InputError, with nothing
        published, if an input has changed since the beginning, or the folder is gone.
        """
        if changed := self.recipe.differences(replace(self.recipe, inputs=inputs_now)):
            raise InputError(
                f"{self.output}: not published, for an input changed meanwhile: {'; '.join(changed[:3])}; run the "
                "command again with --force when nobody writes there"
            )
        records = []
        try:
            for final, (path, md5) in outputs.items():
                if path == self.folder / PARTS:  # whose files are on the disk since they were added
                    sync_all(Path(folder) for folder, _ in walked(path))
                else:
                    sync_folder(path)
                records.append(record_of(path, final.name, md5))
            if self._folder_identity() != self._identity:
                raise FileNotFoundError
        except FileNotFoundError:
            raise _gone(self.folder) from None
        manifest = made_by(self.recipe, records, wall_s=time.monotonic() - self._started, facts=facts)
        renames = [(str(path.relative_to(self.folder)), final.name) for final, (path, _) in outputs.items()]
        with suppress(FileExistsError):  # the folder went away between two looks at it
            write_text(self.folder / PUBLISH, as_json(Publication(manifest, renames)))
        if not publish_pending(self.output):
            raise _gone(self.folder)
        return manifest


@contextmanager
def resumable_output(
    output: Path,
    recipe: Recipe,
    *,
    paths: Sequence[Path] | None = None,
    inputs: Sequence[Path] = (),
    shard: Shard | None = None,
    force: bool = False,
    by_input: bool = False,
    wait_s: float = 0,
) -> Iterator[ResumableOutput | None]:
    """Yield the folder in which ``output`` is made, with all parts that earlier processes finished.

    Yields None if ``output`` exists and was made by the same recipe. ``paths``: the paths that get their names in the
    end (None: ``output`` itself). ``inputs``: local files and folders that must not be overwritten. ``force``: replace
    an output, finished or not, of another recipe. ``by_input``: each part is made of one input and named by its
    content, so work that was begun with other inputs goes on. ``wait_s``: seconds that another process which makes the
    same may take.

    Raises InputError if anything that this command did not make would be overwritten, for a folder begun by another
    recipe, and if another process does the same work.
    """
    paths, folder = [output] if paths is None else paths, partial_path(output)
    if shard is not None and force:
        raise InputError(
            f"--shard {shard} with --force: several tasks would remove each other's work; remove {output} and "
            f"{folder} yourself, or pass --force to the command without --shard"
        )
    for path in (*paths, manifest_path(output)):
        _require_apart(path, inputs)
    publish_pending(output)  # a killed process may have left renames to do
    _remove_asides(folder)
    if _is_made(output, recipe, paths, force=force):
        yield None
        return
    _open(output, recipe, begin_anew=force, by_input=by_input)
    lock = "whole.lock" if shard is None else f"shard-{shard.index}-of-{shard.count}.lock"
    with ExitStack() as locks:
        try:
            locks.enter_context(
                only_one_in(folder, "another process makes the same; wait for it", name=lock, longer_s=wait_s)
            )
            remove_left_files(folder)
            work = ResumableOutput(output, recipe)
        except FileNotFoundError:  # whoever held the lock has finished
            if not _is_made(output, recipe, paths, force=False):
                raise _gone(folder) from None
            yield None
            return
        try:
            yield work
        finally:
            if shard is None and not is_there(folder / PUBLISH) and not journalled_parts(folder):
                remove_partial(folder)


def _gone(folder: Path) -> InputError:
    return InputError(f"{folder}: gone meanwhile, for another process finished or removed it; run the command again")


def _is_made(output: Path, recipe: Recipe, paths: Sequence[Path], *, force: bool) -> bool:
    """Return whether the recipe's output exists; with ``force`` it is always made again.

    Raises InputError if one of its names belongs to something that this command did not make, or that was changed
    since; without ``force`` also if it was made by another recipe.
    """
    manifest = read_manifest(output)
    existing, mend = list(filter(is_taken, paths)), "remove it yourself or choose another output"
    if manifest is None:
        if existing:
            raise InputError(f"{existing[0]} exists, and no manifest says that {recipe.stage} made it; {mend}")
        return False
    if manifest.stage != recipe.stage:
        raise InputError(
            f"{manifest_path(output)}: {manifest.stage} made this, and {recipe.stage} replaces only its own; {mend}"
        )
    records = {record.name: record for record in manifest.outputs}
    for path in existing:
        if (record := records.get(path.name)) is None:
            raise InputError(f"{path}: not in {manifest_path(output)}; {mend}")
        problem = record_problem(path, record)
        if problem is None and force and record_of(path, path.name, None).mtime_ns > record.mtime_ns:
            problem = f"{path}: modified after it was made"
        if problem:
            raise InputError(f"{problem}, so somebody changed it since; {mend}")
    if force or not existing:
        return False
    if why := "; ".join(recipe.differences(manifest)[:3]):
        raise InputError(f"{existing[0]} exists and was made otherwise ({why}); choose another output or pass --force")
    return len(existing) == len(records)


def _require_apart(output: Path, inputs: Sequence[Path]) -> None:
    """Raise InputError if writing ``output`` would remove or change an input."""
    target = Path(os.path.realpath(output))
    for source in inputs:
        real = Path(os.path.realpath(source))
        if target in (real, *real.parents) or real in target.parents:
            raise InputError(f"{output}: is or holds the input {source}, or lies in it; choose another output")


def _open(output: Path, recipe: Recipe, *, begin_anew: bool, by_input: bool) -> None:
    """Make sure that OUTPUT.partial of this recipe exists, the old one or a new one."""
    folder = partial_path(output)
    _create(output, recipe)
    try:
        begun = read_json(folder / RECIPE, Recipe, mend="remove the folder")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder}: not made by this command; remove it or choose another output") from None
    differences = recipe.differences(replace(begun, inputs=recipe.inputs) if by_input else begun)
    if differences and not begin_anew and journalled_parts(folder):
        raise InputError(
            f"{folder}: begun for another output: {'; '.join(differences[:3])}; continue that output, remove "
            "the folder, or run the command without --shard and with --force, which begins anew"
        )
    if differences:
        remove_partial(folder)
        _open(output, recipe, begin_anew=False, by_input=by_input)  # another process may have begun another one


def _create(output: Path, recipe: Recipe) -> None:
    """Make OUTPUT.partial if there is none: it appears with its recipe in it."""
    if name_is_taken(partial_path(output)):
        return
    new = unique_partial(output)
    try:
        for inner in (JOURNAL, PARTS, WRITING):
            (new / inner).mkdir(parents=True)
        write_text(new / RECIPE, as_json(recipe))
        with suppress(OSError):  # another process was faster
            new.rename(partial_path(output))
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _remove_asides(folder: Path) -> None:
    """Remove the remains of a process that was killed in ``remove_partial``, or wrote into the folder after it."""
    for aside in folder.parent.glob(f"{glob.escape(folder.name)}.{'[0-9a-f]' * 8}{PARTIAL}"):
        shutil.rmtree(aside, ignore_errors=True)  # another process may do the same
    with suppress(OSError):  # there is none, or files of others
        if [path.name for path in folder.iterdir()] == [WRITING]:
            remove_left_files(folder)
            (folder / WRITING).rmdir()
            folder.rmdir()
