"""Bring the benchmark's inputs together in one folder: from Hugging Face, or from a folder that has them.

Each file, and the checkpoint's folder, is an output of its own (``stage.outputs.resumable_output``): it has its final
name only once it is whole and checked, and a manifest beside it says where it came from, by the commit and by its
content.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.preparation.artifacts import ARTIFACTS, HOW_TO_GET_IN, REPOSITORY, Artifact, Download, What
from data_prep.preparation.downloader import bring
from data_prep.preparation.hub import Hub
from stage.errors import CheckFailed, InputError
from stage.json_files import read_json
from stage.outputs.manifest import (
    Manifest,
    Recipe,
    Source,
    files_below,
    made_by,
    manifest_path,
    read_manifest,
    record_of,
    source_of,
    write_manifest,
)
from stage.outputs.resumable_output import NewPiece, ResumableOutput, resumable_output
from stage.progress import progress
from stage.tables import table_text

STAGE = "fetch"
DOWNLOADED = "downloads"
"""Below the output folder, with one for each download of MLCommons' script."""
DOWNLOADS_AT_ONCE = 4
LINKS_AT_ONCE = 1000
DEFAULT_REVISION = "main"
UNREAD = ""
"""Stands for the MD5 of a file that was linked: nobody has read it all."""


@dataclass(frozen=True)
class Wanted:
    """One file, or the checkpoint's folder."""

    what: What
    name: str
    """Path below the output folder."""

    @property
    def artifact(self) -> Artifact:
        return ARTIFACTS[self.what]


def wanted_files(what: Sequence[What], train_shards: Sequence[str] | None) -> list[Wanted]:
    """Return all files of ``what``; of the training shards those given, or the benchmark's."""
    return [
        Wanted(kind, name)
        for kind in what
        for name in (train_shards if kind == "train" and train_shards is not None else ARTIFACTS[kind].files)
    ]


def fetch(
    output: Path,
    wanted: Sequence[Wanted],
    *,
    source: Path | None = None,
    downloader: tuple[Path, Sequence[Download]] | None = None,
    revision: str | None = None,
    force: bool = False,
) -> None:
    """Bring the files of ``wanted`` that can be had to ``output``: from the folder ``source``, by the user's script of
    ``downloader``, which is run for what is named with it, or else from the hub.

    ``revision`` None: what is there stays, and the rest comes from the commit that it came from, or the newest.
    ``force``: files that fetch brought from another commit or folder are replaced. Raises InputError when the hub
    cannot be reached, InputError or CheckFailed for a file that is not what it should be.
    """
    if source is not None and not source.is_dir():
        raise InputError(f"--from {source}: no such folder")
    public = [file for file in wanted if file.artifact.public and source is None and downloader is None]
    for file in wanted:
        path = output / file.name
        if file not in public and path.exists() and checked(path) is None:
            _record(path, Recipe(STAGE, {}, [source_of(path)]), md5=file.artifact.check(path))
    if source is not None:
        _take_all(output, source, wanted, force=force)
    elif downloader is not None:
        for download in downloader[1]:
            folder = output / DOWNLOADED / download.name
            if checked(folder) is None:
                md5 = bring(downloader[0], download, folder)
                _record(folder, Recipe(STAGE, {"download": download.file}, []), md5=md5)
            _take_all(output, folder, wanted, force=force)
    else:
        _download_all(output, [file.name for file in public], revision, force=force)


def checked(path: Path) -> Manifest | None:
    """Return the manifest of a file or folder that is there as it was when it was checked, or made; else None."""
    manifest = read_manifest(path)
    if manifest is None or not path.exists():
        return None
    record = next((record for record in manifest.outputs if record.name == path.name), None)
    return manifest if record is not None and record_of(path, path.name, record.md5) == record else None


def _record(path: Path, recipe: Recipe, *, md5: str | None) -> None:
    """Write the manifest of what was there already and has been checked, unless another command's says what it is."""
    manifest = read_manifest(path)
    if manifest is None or manifest.stage == STAGE:
        write_manifest(path, made_by(recipe, [record_of(path, path.name, md5)], wall_s=0))


def _take_all(output: Path, source: Path, wanted: Sequence[Wanted], *, force: bool) -> None:
    """Check files of ``source``, by their names here or at their origin, and link them, or copy across file systems."""
    found = {
        file: path
        for file in wanted
        if (force or not (output / file.name).exists()) and (path := _find(source, file)) is not None
    }
    with progress("take", len(found), "files") as advance:
        for file, path in found.items():
            _take(path, output / file.name, md5=file.artifact.check(path), force=force)
            advance(1)


def _find(source: Path, file: Wanted) -> Path | None:
    names = (file.name, Path(file.name).name, file.artifact.published_name)
    return next((source / name for name in names if name is not None and (source / name).exists()), None)


def _take(found: Path, target: Path, *, md5: str | None, force: bool) -> None:
    """Make ``target`` of links to ``found``, a file or a folder."""
    recipe = Recipe(STAGE, {}, [source_of(found)])
    with resumable_output(target, recipe, inputs=[found], force=force) as job:
        if job is None:
            return
        is_folder = found.is_dir()
        names = {name: found / name for name, _ in files_below(found)} if is_folder else {target.name: found}
        missing = job.missing(names)
        for first in range(0, len(missing), LINKS_AT_ONCE):
            job.add([_linked(job, name, names[name], md5) for name in missing[first : first + LINKS_AT_ONCE]])
        place = job.folder / "pieces" if is_folder else job.path(target.name)
        job.publish({target: (place, md5)}, [source_of(found)], {})


def _linked(job: ResumableOutput, name: str, found: Path, md5: str | None) -> NewPiece:
    path = job.new_path()
    try:
        os.link(found.resolve(), path)
    except OSError:  # another file system, one without links, or somebody else's file
        shutil.copy2(found, path)
    return NewPiece(name, path, md5 or UNREAD)


def _download_all(output: Path, names: Sequence[str], revision: str | None, *, force: bool) -> None:
    """Download the files that are not there, or all of ``revision``, comparing with what the hub says of them."""
    absent = [name for name in names if revision is not None or force or checked(output / name) is None]
    if not absent:
        return
    hub = Hub(REPOSITORY, revision or _earlier_commit(output) or DEFAULT_REVISION)
    remote = hub.describe(absent)
    with (
        progress("fetch", sum(file.bytes for file in remote.values()), "bytes", files=len(absent)) as meter,
        ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool,
    ):
        jobs = {pool.submit(_download, hub, output / name, name, remote[name], force): name for name in absent}
        try:
            for job in as_completed(jobs):
                job.result()
                meter(remote[jobs[job]].bytes, files=1)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # downloads that have begun end first
            raise


def _earlier_commit(output: Path) -> str | None:
    """Return the commit that files were brought from before, perhaps others than those wanted now."""
    for folder in {
        (output / name).parent for artifact in ARTIFACTS.values() if artifact.public for name in artifact.files
    }:
        for path in sorted(folder.glob(manifest_path(Path("*")).name)):
            manifest = read_json(path, Manifest)
            if manifest.stage == STAGE and "commit" in manifest.options:
                return str(manifest.options["commit"])
    return None


def _download(hub: Hub, target: Path, name: str, expected: Source, force: bool) -> None:
    """Fetch and check one file; one that lies there without a manifest is checked only."""
    recipe = Recipe(STAGE, {"repository": hub.repository, "commit": hub.commit}, [expected])
    if target.exists() and checked(target) is None:
        _record(target, recipe, md5=_require_equal(target, expected, mend="delete it and fetch it again"))
        return
    with resumable_output(target, recipe, force=force) as job:
        if job is None:
            return
        if job.missing([target.name]):
            arrived = hub.download(name, job.new_path())
            job.add([NewPiece(target.name, arrived, _require_equal(arrived, expected, mend="fetch it again"))])
        piece = job.done[target.name]
        job.publish({target: (job.path(piece.name), piece.md5)}, [expected], {})


def _require_equal(path: Path, expected: Source, *, mend: str) -> str:
    """Compare size and SHA-256 with what the hub says; returns the MD5. Raises CheckFailed where they differ."""
    found = path.stat().st_size
    if found != expected.bytes:
        raise CheckFailed(f"{path}: {found} bytes, the hub has {expected.bytes}; {mend}")
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
            md5.update(block)
    if f"sha256:{sha256.hexdigest()}" != expected.identity:
        due = expected.identity.removeprefix("sha256:")
        raise CheckFailed(f"{path}: SHA-256 {sha256.hexdigest()}, the hub has {due}; {mend}")
    return md5.hexdigest()


def files_there(output: Path, wanted: Sequence[Wanted]) -> dict[Wanted, bool]:
    """Tell of each file whether it is there, and is what was checked or made."""
    return {file: checked(output / file.name) is not None for file in wanted}


def format_table(there: Mapping[Wanted, bool]) -> str:
    """Return one line per artifact: how many of its files are there; then where they come from, with the downloader's
    commands for those that are not there."""
    rows, origins = [], ["where they come from:"]
    for what in dict.fromkeys(file.what for file in there):
        files = [file for file in there if file.what == what]
        artifact = ARTIFACTS[what]
        size = artifact.bytes * len(files) / len(artifact.files)
        names = files[0].name if len(files) == 1 else f"{files[0].name} to {files[-1].name}"
        rows.append([what, str(sum(there[file] for file in files)), str(len(files)), _format_size(size), names])
        origins.append(f"  {what}: {artifact.origin}")
    lines = [table_text(["what", "there", "of", "size", "files"], rows, right={1, 2, 3}), *origins]
    absent = [file.artifact for file, found in there.items() if not found]
    downloads = dict.fromkeys(download for artifact in absent for download in artifact.downloads)
    if downloads:
        lines.append(HOW_TO_GET_IN)
        lines += [f"{download.file}:\n    {download.command}" for download in downloads]
    return "\n".join(lines)


def table_as_json(there: Mapping[Wanted, bool]) -> list[dict[str, Any]]:
    """Return what the table says, as one entry for each file."""
    return [
        {
            "what": file.what,
            "name": file.name,
            "there": found,
            "origin": file.artifact.origin,
            "commands": [download.command for download in file.artifact.downloads],
        }
        for file, found in there.items()
    ]


def _format_size(size: float) -> str:
    unit, name = next((unit, name) for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if size >= unit)
    return f"{size / unit:.1f} {name}"


def require_all(output: Path, there: Mapping[Wanted, bool]) -> None:
    """Raise CheckFailed when a file is not there, or was not checked."""
    missing = [file for file, found in there.items() if not found]
    if missing:
        manual = [file for file in missing if not file.artifact.public]
        mend = f"; get {manual[0].name} from where the table says and pass --from FOLDER" if manual else ""
        raise CheckFailed(
            f"{output}: {len(missing)} of {len(there)} files are missing or not checked, first {missing[0].name}{mend}"
        )
