"""An output that is made of pieces, by one process or by several, and appears whole or not at all.

Whatever takes long here is a job of this kind: input files tokenised, chunks converted, files exported or fetched.
While it is made it lies in OUTPUT.partial:

recipe.json    everything the output depends on; a process with another recipe is refused, and told what differs
journal/       a file for each process; a line for each piece that it has finished: name, bytes, MD5, facts
pieces/        the finished pieces, under their names
writing/       pieces that are being written, each under a name that no other process uses
publish.json   the manifest and the renames that are left, once publishing has begun

Nothing here needs a lock. A piece is renamed to its place when it is whole and on the disk, and counts when the journal
and the disk agree on it, so processes that are killed, or started twice, cost their own work and nothing else.
"""

import errno
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from stage.errors import InputError
from stage.json_files import as_json, read_json
from stage.outputs.digest import md5_file
from stage.outputs.lock import only_one_in
from stage.outputs.manifest import (
    ASKED_AT_ONCE,
    Manifest,
    Recipe,
    Source,
    made_by,
    manifest_path,
    read_manifest,
    record_of,
    record_problem,
    require_intact,
)
from stage.outputs.publish import (
    partial_path,
    replace_path,
    sync_all,
    sync_folder,
    sync_to_disk,
    unique_partial,
    write_text,
)
from stage.outputs.shards import Shard
from stage.progress import progress

RECIPE, PUBLISH = "recipe.json", "publish.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, a quota or a limit on the size of files that leaves no room."""


@dataclass(frozen=True)
class Piece:
    """A finished piece, as a line of the journal."""

    name: str
    """Path below ``pieces/``."""
    bytes: int
    md5: str
    mtime_ns: int
    """Time of modification; a piece that has another one is read again before it counts."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the job wants to remember of it; JSON values."""
    ctime_ns: int = 0
    """Time of change, which nobody can set back; a piece that has another one is read again likewise."""


@dataclass(frozen=True)
class NewPiece:
    """A piece that is written, and waits for its name."""

    name: str
    path: Path
    """Where it was written: a path of :meth:`ResumableOutput.new_path`."""
    md5: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Publication:
    """The content of publish.json."""

    manifest: Manifest
    renames: Sequence[tuple[str, str]]
    """From a path below OUTPUT.partial to a name beside OUTPUT."""


class ResumableOutput:
    """One process's hold on OUTPUT.partial. Threads may share it, and so may processes forked from this one."""

    def __init__(self, output: Path, recipe: Recipe) -> None:
        self.output, self.recipe, self.folder = output, recipe, partial_path(output)
        self._inode = _inode(self.folder)
        """Tells this folder from one that another process makes in its place, once it has been published."""
        self.done: dict[str, Piece] = _still_there(self.folder / "pieces", _journalled(self.folder / "journal"))
        """Finished pieces by name, those of other processes as they were when this one began."""
        self._started = time.monotonic()
        self._journal = (0, -1)
        """Process and handle of the journal; a forked process opens its own."""

    def path(self, name: str) -> Path:
        """Return where the finished piece ``name`` lies."""
        return self.folder / "pieces" / name

    def new_path(self) -> Path:
        """Return a path to write a piece to that no other process uses."""
        return self.folder / "writing" / secrets.token_hex(8)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that are not finished, in order."""
        return [name for name in names if name not in self.done]

    def add(self, pieces: Sequence[NewPiece]) -> None:
        """Bring written pieces to the disk, give them their names and note them; many at a time cost one wait.

        Raises OSError where the disk refuses, InputError where the folder is gone.
        """
        try:
            sync_all(piece.path for piece in pieces)
            lines = b""
            for piece in pieces:
                self._move(piece)
                found = self.path(piece.name).stat()
                one = Piece(
                    piece.name, found.st_size, piece.md5, found.st_mtime_ns, piece.facts, ctime_ns=found.st_ctime_ns
                )
                lines += msgspec.json.encode(one) + b"\n"
                self.done[piece.name] = one
            self._note(lines)
        except FileNotFoundError:  # nobody else takes away what this process has written
            raise _gone(self.folder) from None

    def _move(self, piece: NewPiece) -> None:
        """Give a piece its name, in a folder of its own where the name has slashes. ``pieces/`` itself is never made
        anew: where it is missing, all that was in it is published. Raises FileNotFoundError then."""
        place = self.path(piece.name)
        try:
            piece.path.rename(place)
        except FileNotFoundError:
            for parent in reversed(Path(piece.name).parents[:-1]):
                self.path(str(parent)).mkdir(exist_ok=True)
            piece.path.rename(place)

    def _note(self, lines: bytes) -> None:
        process, handle = self._journal
        if process != os.getpid():
            path = self.folder / "journal" / f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            self._journal = (os.getpid(), handle)
        os.write(handle, lines)  # a line that a full disk cuts short does not count, and its piece is made again

    def reload(self) -> None:
        """Look again for pieces that other processes have finished."""
        self.done = _still_there(self.folder / "pieces", _journalled(self.folder / "journal"))

    def publish(
        self, outputs: Mapping[Path, tuple[Path, str | None]], inputs_now: Sequence[Source], facts: Mapping[str, Any]
    ) -> Manifest:
        """Give ``outputs`` their final names, write the manifest, and remove the folder.

        ``outputs``: by final path, which lies beside OUTPUT, where it lies below OUTPUT.partial, and its MD5 (of a
        folder: of its list of sums). ``inputs_now``: the inputs as they are at the end. Raises InputError, with
        nothing published, where an input has changed since the beginning, or the folder is gone.
        """
        changed = self.recipe.differences(
            Recipe(self.recipe.stage, self.recipe.options, inputs_now, self.recipe.versions)
        )
        if changed:
            raise InputError(
                f"{self.output}: not published, for an input changed meanwhile: {'; '.join(changed[:3])}; run the "
                "command again with --force when nobody writes there"
            )
        records = []
        try:
            for final, (place, md5) in outputs.items():
                sync_folder(place) if place.is_dir() else sync_to_disk(place)
                records.append(record_of(place, final.name, md5))
            if _inode(self.folder) != self._inode:
                raise _gone(self.folder)
        except FileNotFoundError:
            raise _gone(self.folder) from None
        manifest = made_by(self.recipe, records, wall_s=time.monotonic() - self._started, facts=facts)
        renames = [(str(place.relative_to(self.folder)), final.name) for final, (place, _) in outputs.items()]
        write_text(self.folder / PUBLISH, as_json(Publication(manifest, renames)))
        _publish(self.folder, self.output)
        return manifest


@contextmanager
def resumable_output(
    output: Path,
    recipe: Recipe,
    *,
    made: Sequence[Path] | None = None,
    inputs: Sequence[Path] = (),
    shard: Shard | None = None,
    force: bool = False,
    alone: bool = True,
    by_input: bool = False,
    option: str = "--output",
) -> Iterator[ResumableOutput | None]:
    """Yield the folder in which ``output`` is made, with all that earlier processes finished; None where ``output`` is
    there already, made by the same recipe.

    ``made``: the paths that get their names in the end (None: ``output`` itself). ``inputs``: local files and folders
    that must not be overwritten. ``force``: what is there, or half made, by another recipe is replaced. ``alone``:
    whether a process that does the same work at the same time ends this one; else it is waited for a while, and then
    both make the output, which the faster one publishes. Raises InputError for what would overwrite anything that this
    command did not make, for a folder begun by another recipe, and where another process does the same work.

    ``by_input``: each piece is made of one input, whose content its name tells. Then the command without shard goes on
    where some inputs have changed since, as one that was damaged and is mended: only their pieces are made anew.
    """
    made = [output] if made is None else made
    if shard is not None and force:
        raise InputError(
            f"--shard {shard} with --force: several tasks would remove each other's work; remove {output} and "
            f"{partial_path(output)} yourself, or pass --force to the command without --shard"
        )
    for path in (*made, manifest_path(output)):
        require_apart(path, inputs)
    _finish_publishing(output)
    if not force and _is_made(output, recipe, made, option):
        _remove(partial_path(output), recipe)
        yield None
        return
    if force:
        _require_ours(output, recipe.stage, made)
    folder = _open(output, recipe, begin_anew=force, by_input=by_input and shard is None)
    with ExitStack() as held:
        try:
            mend = None if not alone else "another process makes the same; wait for it"
            held.enter_context(only_one_in(folder, mend, name=f"{_writer(shard)}.lock"))
            if not (folder / RECIPE).exists():
                raise FileNotFoundError(folder)
        except FileNotFoundError:  # whoever held the lock has finished
            if not _is_made(output, recipe, made, option):
                raise _gone(folder) from None
            yield None
            return
        try:
            yield ResumableOutput(output, recipe)
        except OSError as error:
            if error.errno not in FULL:
                raise
            where = f"{error.filename or folder}: {error.strerror}"
            raise InputError(f"{where}; make room and run the command again, it goes on from here") from error
        finally:
            if shard is None and not (folder / PUBLISH).exists() and not _journalled(folder / "journal"):
                _remove(folder, recipe)


def _writer(shard: Shard | None) -> str:
    return "whole" if shard is None else f"shard-{shard.index}-of-{shard.count}"


def _inode(folder: Path) -> int:
    """Return the number of a folder on its file system. Raises InputError where it is gone."""
    try:
        return folder.stat().st_ino
    except FileNotFoundError:
        raise _gone(folder) from None


def _gone(folder: Path) -> InputError:
    return InputError(f"{folder}: gone meanwhile, for another process finished or removed it; run the command again")


def _is_made(output: Path, recipe: Recipe, made: Sequence[Path], option: str) -> bool:
    """Whether the recipe's output is there. Raises InputError where something else has one of its names."""
    there = next(filter(_is_taken, made), None)
    manifest = read_manifest(output)
    if there is None and (manifest is None or manifest.stage == recipe.stage):
        return False
    if manifest is None:
        raise InputError(f"{there} exists and no manifest says what it is; remove it or choose another {option}")
    try:
        require_intact(output)
        why = "; ".join(recipe.differences(manifest.recipe)[:3])
    except InputError as damaged:
        why = str(damaged)
    if why:
        raise InputError(
            f"{there or manifest_path(output)} exists and was made otherwise ({why}); choose another {option} or pass "
            "--force"
        )
    return True


def _is_taken(path: Path) -> bool:
    """Whether something has this name; an empty folder, which its user has made beforehand, is nothing to be lost."""
    return os.path.lexists(path) and (path.is_symlink() or not path.is_dir() or any(path.iterdir()))


def _require_ours(output: Path, stage: str, made: Sequence[Path]) -> None:
    """Raise InputError unless all that has the output's names is what the manifest says that this command made."""
    there = list(filter(_is_taken, made))
    try:
        manifest = read_manifest(output)
    except InputError:
        manifest = None
        there = there or [manifest_path(output)]
    mend = "remove it yourself or choose another output"
    if there and manifest is None:
        raise InputError(f"{there[0]}: no manifest says that {stage} made it, and nothing else is replaced; {mend}")
    if manifest is not None and manifest.stage != stage:
        raise InputError(
            f"{manifest_path(output)}: {manifest.stage} made this, and only what {stage} made is replaced; {mend}"
        )
    records = {record.name: record for record in manifest.outputs} if manifest else {}
    for path in there:
        if path.name not in records:
            raise InputError(f"{path}: not in {manifest_path(output)}; {mend}")
        problem = record_problem(path, records[path.name])
        if problem is None and record_of(path, path.name, None).mtime_ns > records[path.name].mtime_ns:
            problem = f"{path}: modified after it was made"
        if problem:
            raise InputError(f"{problem}, so somebody changed it since; {mend}")


def require_apart(output: Path, inputs: Sequence[Path]) -> None:
    """Raise InputError where writing ``output`` would remove or change an input: where it is one, holds one, or lies in
    a folder that is one, under whatever name."""
    target = Path(os.path.realpath(output))
    for source in inputs:
        real = Path(os.path.realpath(source))
        if target == Path(os.path.realpath(manifest_path(source))):
            raise InputError(f"{output}: is the manifest of the input {source}; choose another output")
        if target == real or target in real.parents or _same_file(output, source):
            raise InputError(f"{output}: holds the input {source}; choose another output")
        if real in target.parents and real.is_dir():
            raise InputError(f"{output}: lies in the input {source}; choose another output")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _open(output: Path, recipe: Recipe, *, begin_anew: bool, by_input: bool) -> Path:
    """Return OUTPUT.partial of this recipe, the one that is there or a new one, which appears with its recipe in it;
    with ``by_input`` one of a recipe with other inputs becomes that of this one."""
    folder = partial_path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(3):
        if not os.path.lexists(folder):
            own = unique_partial(output)
            try:
                for inner in ("journal", "pieces", "writing"):
                    (own / inner).mkdir(parents=True)
                write_text(own / RECIPE, as_json(recipe))
                with suppress(OSError):  # another process was faster
                    own.rename(folder)
            finally:
                shutil.rmtree(own, ignore_errors=True)
            continue
        try:
            found = read_json(folder / RECIPE, Recipe, mend="remove the folder")
        except (FileNotFoundError, NotADirectoryError):
            if folder.is_dir() and all(path.suffix == ".lock" for path in folder.iterdir()):
                shutil.rmtree(folder)  # a removal was cut short
                continue
            raise InputError(f"{folder}: not made by this command; remove it or choose another output") from None
        differences = recipe.differences(found)
        if not differences:
            return folder
        if by_input and not begin_anew and not recipe.differences(replace(found, inputs=recipe.inputs)):
            write_text(folder / RECIPE, as_json(recipe))
            return folder
        if not begin_anew and _journalled(folder / "journal"):
            raise InputError(
                f"{folder}: begun for another output: {'; '.join(differences[:3])}; go on with what it was begun for, "
                "remove it, or run the command without --shard and with --force, which begins anew"
            )
        _remove(folder, found)
    raise _gone(folder)


def _remove(folder: Path, recipe: Recipe) -> None:
    """Remove OUTPUT.partial of ``recipe``, its recipe last: a removal that is cut short can be finished."""
    try:
        if recipe.differences(read_json(folder / RECIPE, Recipe)):
            return
    except (OSError, InputError):
        return
    for inner in ("journal", "pieces", "writing"):
        shutil.rmtree(folder / inner, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _journalled(folder: Path) -> dict[str, list[Piece]]:
    """Return what all journals in ``folder`` say of each piece."""
    found: dict[str, list[Piece]] = {}
    decoder = msgspec.json.Decoder(Piece)
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            with suppress(msgspec.DecodeError):  # a line that a kill or a full disk has cut short
                piece = decoder.decode(line)
                found.setdefault(piece.name, []).append(piece)
    return found


def _still_there(folder: Path, journalled: Mapping[str, Sequence[Piece]]) -> dict[str, Piece]:
    """Return the pieces that the disk has as the journals say; those that only the time tells apart are read."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        stats = pool.map(lambda name: _stat(folder / name), journalled)
        states = dict(zip(journalled, stats, strict=True))
        found, doubtful = {}, []
        for name, pieces in journalled.items():
            state = states[name]
            for piece in pieces if state is not None else ():
                if state is not None and piece.bytes == state.st_size:
                    if (piece.mtime_ns, piece.ctime_ns) == (state.st_mtime_ns, state.st_ctime_ns):
                        found[name] = piece
                    else:
                        doubtful.append(piece)
        doubtful = [piece for piece in doubtful if piece.name not in found]
        if doubtful:
            with progress("verify", sum(piece.bytes for piece in doubtful), "bytes", files=len(doubtful)) as meter:
                for piece, md5 in zip(
                    doubtful, pool.map(lambda one: md5_file(folder / one.name), doubtful), strict=True
                ):
                    meter(piece.bytes, files=1)
                    if md5 == piece.md5:
                        found[piece.name] = piece
    return found


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _finish_publishing(output: Path) -> None:
    """Do what is left where a process was killed while it published."""
    folder = partial_path(output)
    if (folder / PUBLISH).exists():
        _publish(folder, output)


def _publish(folder: Path, output: Path) -> None:
    """Make the renames that are left, write the manifest, remove the folder."""
    try:
        found = read_json(folder / PUBLISH, Publication, mend=f"remove {folder} and make it again")
    except FileNotFoundError:
        raise _gone(folder) from None
    for place, name in found.renames:
        if (folder / place).exists():
            with suppress(FileNotFoundError):  # another process, which found the same publish.json, was faster
                replace_path(folder / place, output.parent / name)
    for record in found.manifest.outputs:
        if problem := record_problem(output.parent / record.name, record):
            raise InputError(f"{problem}, after it was published; remove {folder} and make it again")
    write_text(manifest_path(output), as_json(found.manifest))
    _remove(folder, found.manifest.recipe)
