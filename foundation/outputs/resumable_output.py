"""An output that is made of pieces, by one process or by several, and appears whole or not at all.

All long work is done this way: tokenising input files, converting chunks, exporting or fetching files. While the output
is made it lies in OUTPUT.partial:

recipe.json    everything the output depends on; a process with another recipe is refused, and told what differs
journal/       a file for each process; a line for each piece that it has finished: name, bytes, MD5, facts
pieces/        the finished pieces, under their names
writing/       pieces that are being written, each under a name that no other process uses
publish.json   the manifest and the renames that are left, once publishing has begun

No lock is needed. A piece is renamed to its place when it is whole and on the disk, and counts when the journal and the
disk agree on it, so processes that are killed, or started twice, lose their own work and nothing else.
"""

import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from foundation.errors import InputError
from foundation.file_formats.json_files import as_json, read_json
from foundation.outputs.digest import md5_file
from foundation.outputs.lock import only_one_in
from foundation.outputs.manifest import (
    ASKED_AT_ONCE,
    Manifest,
    Recipe,
    Source,
    made_by,
    manifest_path,
    read_manifest,
    record_of,
    record_problem,
)
from foundation.outputs.publish import (
    PARTIAL,
    partial_path,
    replace_path,
    sync_all,
    sync_folder,
    unique_partial,
    walked,
    write_text,
)
from foundation.outputs.shards import Shard
from foundation.progress import progress

RECIPE, PUBLISH = "recipe.json", "publish.json"
JOURNAL, PIECES, WRITING = "journal", "pieces", "writing"


@dataclass(frozen=True)
class OutputPart:
    """A finished piece; a line of the journal."""

    name: str
    """Path below ``pieces/``."""
    bytes: int
    md5: str
    ctime_ns: int
    """Time of change, which nobody can set back; if it differs, the piece is read again before it counts."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The job's own notes; JSON values."""


@dataclass(frozen=True)
class NewPart:
    """A written piece that has not got its name yet."""

    name: str
    path: Path
    """Path that it was written to, from :meth:`ResumableOutput.new_path`."""
    md5: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Publication:
    """The content of publish.json."""

    manifest: Manifest
    renames: Sequence[tuple[str, str]]
    """Renames from a path below OUTPUT.partial to a name beside OUTPUT."""


class ResumableOutput:
    """One process's access to OUTPUT.partial. Threads may share it, and so may processes forked from this one."""

    def __init__(self, output: Path, recipe: Recipe) -> None:
        """Open the folder. Raises FileNotFoundError if the folder has been published or removed."""
        self.output, self.recipe, self.folder = output, recipe, partial_path(output)
        self._inode = (self.folder / RECIPE).stat().st_ino
        """Inode that distinguishes this folder from one that another process makes in its place after publication."""
        self._token = secrets.token_hex(8)
        self._started = time.monotonic()
        self.done = self._finished()
        """Finished pieces by name; those of other processes are known as of the last look."""

    def path(self, name: str) -> Path:
        """Return the path of the finished piece ``name``."""
        return self.folder / PIECES / name

    def new_path(self) -> Path:
        """Return a path to write a piece to that no other process uses."""
        return self.folder / WRITING / secrets.token_hex(8)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that are not finished, in order."""
        return [name for name in names if name not in self.done]

    def add(self, pieces: Sequence[NewPart]) -> None:
        """Sync written pieces to the disk, give them their names and note them; many pieces together cost one wait.

        Raises OSError if the disk refuses, InputError if the folder is gone.
        """
        journal = self.folder / JOURNAL / f"{self._token}-{os.getpid()}.jsonl"  # a forked process has its own
        try:
            sync_all(piece.path for piece in pieces)
            lines = b""
            for piece in pieces:
                found = self._place(piece).stat()
                one = OutputPart(piece.name, found.st_size, piece.md5, found.st_ctime_ns, piece.facts)
                lines += msgspec.json.encode(one) + b"\n"
                self.done[piece.name] = one
            with journal.open("ab") as file:
                file.write(lines)  # a line that a full disk cuts short does not count, and its piece is made again
        except FileNotFoundError:  # nobody else takes away what this process has written
            raise _gone(self.folder) from None

    def _place(self, piece: NewPart) -> Path:
        """Give a piece its name and return its path.

        ``pieces/`` itself is never made again: if it is missing, it has been published, and FileNotFoundError is
        raised.
        """
        place = self.path(piece.name)
        try:
            return piece.path.rename(place)
        except FileNotFoundError:
            for parent in reversed(Path(piece.name).parents[:-1]):
                self.path(str(parent)).mkdir(exist_ok=True)
            return piece.path.rename(place)

    def reload(self) -> None:
        """Look again for pieces that other processes have finished."""
        self.done = self._finished()

    def _finished(self) -> dict[str, OutputPart]:
        """Return the pieces on which the journals and the disk agree; pieces touched since are read again."""
        journalled = _journalled(self.folder)
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            there = list(zip(journalled, pool.map(self._stat, journalled), strict=True))
            done = {one.name: one for one, found in there if found == (one.bytes, one.ctime_ns)}
            touched = [one for one, found in there if one.name not in done and found and found[0] == one.bytes]
            if touched:
                with progress("verify", sum(one.bytes for one in touched), "bytes", files=len(touched)) as meter:
                    sums = pool.map(lambda one: md5_file(self.path(one.name), meter), touched)
                    done |= {one.name: one for one, md5 in zip(touched, sums, strict=True) if md5 == one.md5}
        return done

    def _stat(self, piece: OutputPart) -> tuple[int, int] | None:
        """Return the size of a piece and the time of its last change; None if it is missing."""
        try:
            found = self.path(piece.name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size, found.st_ctime_ns

    def publish(
        self, outputs: Mapping[Path, tuple[Path, str | None]], inputs_now: Sequence[Source], facts: Mapping[str, Any]
    ) -> Manifest:
        """Give ``outputs`` their final names, write the manifest, and remove the folder.

        ``outputs``: by final path, which lies beside OUTPUT, the present path below OUTPUT.partial and the MD5 (for a
        folder, of its list of sums). ``inputs_now``: the inputs at the end. Raises InputError, with nothing published,
        if an input has changed since the beginning, or the folder is gone.
        """
        if changed := self.recipe.differences(replace(self.recipe, inputs=inputs_now)):
            raise InputError(
                f"{self.output}: not published, for an input changed meanwhile: {'; '.join(changed[:3])}; run the "
                "command again with --force when nobody writes there"
            )
        records = []
        try:
            for final, (place, md5) in outputs.items():
                if place == self.folder / PIECES:  # whose files are on the disk since they were added
                    sync_all(Path(folder) for folder, _ in walked(place))
                else:
                    sync_folder(place)
                records.append(record_of(place, final.name, md5))
            if (self.folder / RECIPE).stat().st_ino != self._inode:
                raise FileNotFoundError
        except FileNotFoundError:
            raise _gone(self.folder) from None
        manifest = made_by(self.recipe, records, wall_s=time.monotonic() - self._started, facts=facts)
        renames = [(str(place.relative_to(self.folder)), final.name) for final, (place, _) in outputs.items()]
        with suppress(FileExistsError):  # the folder went away between two looks at it
            write_text(self.folder / PUBLISH, as_json(Publication(manifest, renames)))
        if not _publish(self.output):
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
    """Yield the folder in which ``output`` is made, with all pieces that earlier processes finished.

    Yields None if ``output`` is already there, made by the same recipe. ``made``: the paths that get their names in the
    end (None: ``output`` itself). ``inputs``: local files and folders that must not be overwritten. ``force``: replace
    an output, finished or not, of another recipe. ``by_input``: each piece is made of one input and named by its
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
    _publish(output)  # what a process that was killed has left to do
    _remove_asides(folder)
    if _is_made(output, recipe, paths, force=force):
        yield None
        return
    _open(output, recipe, begin_anew=force, by_input=by_input)
    lock = "whole.lock" if shard is None else f"shard-{shard.index}-of-{shard.count}.lock"
    with ExitStack() as held:
        try:
            held.enter_context(
                only_one_in(folder, "another process makes the same; wait for it", name=lock, longer_s=wait_s)
            )
            work = ResumableOutput(output, recipe)
        except FileNotFoundError:  # whoever held the lock has finished
            if not _is_made(output, recipe, paths, force=False):
                raise _gone(folder) from None
            yield None
            return
        try:
            yield work
        finally:
            if shard is None and not (folder / PUBLISH).exists() and not _journalled(folder):
                _remove(folder)


def _gone(folder: Path) -> InputError:
    return InputError(f"{folder}: gone meanwhile, for another process finished or removed it; run the command again")


def _is_made(output: Path, recipe: Recipe, made: Sequence[Path], *, force: bool) -> bool:
    """Return whether the recipe's output is there; with ``force`` it is always made again.

    Raises InputError if one of its names belongs to something that this command did not make, or that was changed
    since; without ``force`` also if it was made by another recipe.
    """
    manifest = read_manifest(output)
    there, mend = list(filter(_is_taken, made)), "remove it yourself or choose another output"
    if manifest is None:
        if there:
            raise InputError(f"{there[0]} exists, and no manifest says that {recipe.stage} made it; {mend}")
        return False
    if manifest.stage != recipe.stage:
        raise InputError(
            f"{manifest_path(output)}: {manifest.stage} made this, and {recipe.stage} replaces only its own; {mend}"
        )
    records = {record.name: record for record in manifest.outputs}
    for path in there:
        if (record := records.get(path.name)) is None:
            raise InputError(f"{path}: not in {manifest_path(output)}; {mend}")
        problem = record_problem(path, record)
        if problem is None and force and record_of(path, path.name, None).mtime_ns > record.mtime_ns:
            problem = f"{path}: modified after it was made"
        if problem:
            raise InputError(f"{problem}, so somebody changed it since; {mend}")
    if force or not there:
        return False
    if why := "; ".join(recipe.differences(manifest)[:3]):
        raise InputError(f"{there[0]} exists and was made otherwise ({why}); choose another output or pass --force")
    return len(there) == len(records)


def _is_taken(path: Path) -> bool:
    """Return whether the name is taken; an empty folder, made by its user beforehand, does not count."""
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir() or any(path.iterdir()))


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
        found = read_json(folder / RECIPE, Recipe, mend="remove the folder")
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder}: not made by this command; remove it or choose another output") from None
    differences = recipe.differences(replace(found, inputs=recipe.inputs) if by_input else found)
    if differences and not begin_anew and _journalled(folder):
        raise InputError(
            f"{folder}: begun for another output: {'; '.join(differences[:3])}; go on with what it was begun for, "
            "remove it, or run the command without --shard and with --force, which begins anew"
        )
    if differences:
        _remove(folder)
        _open(output, recipe, begin_anew=False, by_input=by_input)  # another process may have begun another one


def _create(output: Path, recipe: Recipe) -> None:
    """Make OUTPUT.partial if there is none: it appears with its recipe in it."""
    if os.path.lexists(partial_path(output)):
        return
    own = unique_partial(output)
    try:
        for inner in (JOURNAL, PIECES, WRITING):
            (own / inner).mkdir(parents=True)
        write_text(own / RECIPE, as_json(recipe))
        with suppress(OSError):  # another process was faster
            own.rename(partial_path(output))
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Remove OUTPUT.partial; for other processes it is gone at once."""
    aside = unique_partial(folder)
    with suppress(FileNotFoundError):  # another process was faster
        folder.rename(aside)
        for _ in range(2):  # a process that was about to write into it may have done so once more
            shutil.rmtree(aside, ignore_errors=True)


def _remove_asides(folder: Path) -> None:
    """Remove what a process that was killed in :func:`_remove` has left."""
    for aside in folder.parent.glob(f"{glob.escape(folder.name)}.{'[0-9a-f]' * 8}{PARTIAL}"):
        shutil.rmtree(aside, ignore_errors=True)  # another process may do the same


def _journalled(folder: Path) -> list[OutputPart]:
    """Return the entries of all journals in OUTPUT.partial."""
    found = []
    decoder = msgspec.json.Decoder(OutputPart)
    for path in sorted((folder / JOURNAL).glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):  # a line that a kill or a full disk has cut short
                found.append(decoder.decode(line))
    return found


def _publish(output: Path) -> bool:
    """Make the remaining renames of publish.json, write the manifest, remove the folder; return False if there are
    none."""
    folder = partial_path(output)
    try:
        found = read_json(folder / PUBLISH, Publication, mend=f"remove {folder} and make it again")
    except (FileNotFoundError, NotADirectoryError):
        return False
    for place, name in found.renames:
        if (folder / place).exists():
            with suppress(FileNotFoundError):  # another process, which found the same publish.json, was faster
                replace_path(folder / place, output.parent / name, folder / WRITING / secrets.token_hex(8))
    for record in found.manifest.outputs:
        if problem := record_problem(output.parent / record.name, record):
            raise InputError(f"{problem}, after it was published; remove {folder} and make it again")
    write_text(manifest_path(output), as_json(found.manifest))
    _remove(folder)
    return True
