"""Collect the benchmark's inputs in one folder: from Hugging Face, or from a folder that has them.

Each file, and the checkpoint's folder, is an output of its own (``foundation.outputs.resumable_output``): it has its
final name only once it is whole and checked. A manifest beside it records its origin, by the commit and by its content.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from data_prep.preparation.artifact_table import artifact_rows, format_table, is_checked, require_all
from data_prep.preparation.artifacts import (
    ARTIFACTS,
    DOWNLOAD_LISTS,
    NEEDED,
    REPOSITORY,
    ArtifactKind,
    needed_files,
)
from data_prep.preparation.downloaded_sums import compared_md5, listed_sum
from data_prep.preparation.hub_dataset import HubDataset, require_equal
from foundation.cli import OutputOptions
from foundation.disk_answers import folder_is_there, is_there
from foundation.errors import CheckFailed, InputError
from foundation.options.option_marks import OptionName
from foundation.outputs.digest import md5_samples
from foundation.outputs.manifest import (
    Recipe,
    Source,
    files_below,
    made_by,
    read_manifest,
    record_of,
    source_of,
    write_manifest,
)
from foundation.outputs.output_parts import NewPart
from foundation.outputs.resumable_output import resumable_output
from foundation.progress import progress
from foundation.regular_files import folder_fault

STAGE = "fetch"
DOWNLOADS_AT_ONCE = 4
LINKS_AT_ONCE = 1000
DEFAULT_REVISION = "main"


def fetch(
    output: Path,
    kinds: Mapping[str, ArtifactKind],
    *,
    source: Path | None = None,
    revision: str | None = None,
    force: bool = False,
) -> None:
    """Bring the available files of ``kinds`` (``needed_files``) to ``output``, from the folder ``source`` or from the
    hub.

    ``revision`` None: existing files stay, and the others come from the same commit, or else the newest. ``force``:
    files that fetch brought from another commit or folder are replaced. Raises InputError when the hub cannot be
    reached, InputError or CheckFailed for a wrong file.
    """
    public = [name for name, kind in kinds.items() if ARTIFACTS[kind].public and source is None]
    for name, kind in kinds.items():
        path = output / name
        if name not in public and is_there(path) and not is_checked(path):
            _record(path, Recipe(STAGE, {}, [source_of(path)]), _checked_md5(path, kind, source))
    if source is None:
        _download_all(output, public, revision, force=force)
        return
    paths = {name: _find(source, name, kind) for name, kind in kinds.items()}
    available = {name: path for name, path in paths.items() if path is not None}
    for name in [name for name in available if not force and is_there(output / name)]:
        _require_same(available.pop(name), output / name)
    with progress("take", len(available), "files") as advance:
        for name, source_path in available.items():
            _take(source_path, output / name, _checked_md5(source_path, kinds[name], source), force=force)
            advance(1)


def _checked_md5(path: Path, kind: ArtifactKind, source: Path | None) -> str | None:
    """Check a file by its kind, and by a list of sums beside it or in ``source``; return its MD5 if that was compared.

    Raises InputError or CheckFailed for a wrong file. Says so if a download's list should lie there and does not.
    """
    artifact = ARTIFACTS[kind]
    md5 = artifact.check(path)
    if folder_is_there(path) or md5 is not None:
        return md5
    expected = listed_sum(path, [] if source is None else [source])
    if expected is None and artifact.brings_sums:
        lists = " or ".join(f"{DOWNLOAD_LISTS[name]}" for name in artifact.downloads)
        print(f"{path}: its MD5 was not compared, for no list has it; put {lists} beside it", file=sys.stderr)
    return compared_md5(path, expected)


def _require_same(path: Path, target: Path) -> None:
    """Raise CheckFailed if a file of the folder ``--from`` differs from the output's file."""
    if folder_is_there(path) or folder_is_there(target) or path.samefile(target):
        return
    if md5_samples(path) != md5_samples(target):
        raise CheckFailed(f"{target}: is there, and {path} is another file; --force replaces files of an earlier fetch")


def _record(path: Path, recipe: Recipe, md5: str | None) -> None:
    """Write the manifest of an existing file that was checked, unless it has another command's manifest."""
    manifest = read_manifest(path)
    if manifest is None or manifest.stage == STAGE:
        write_manifest(path, made_by(recipe, [record_of(path, path.name, md5)], wall_s=0))


def _find(source: Path, name: str, kind: ArtifactKind) -> Path | None:
    """Return the file in ``source``, by its name here or at its origin; None if there is none."""
    names = (name, Path(name).name, ARTIFACTS[kind].published_name or name)
    return next((source / name for name in names if is_there(source / name)), None)


def _take(source: Path, target: Path, md5: str | None, *, force: bool) -> None:
    """Make ``target`` of links to ``source``, a file or a folder, or of copies across file systems."""
    with resumable_output(target, Recipe(STAGE, {}, [source_of(source)]), inputs=[source], force=force) as job:
        if job is None:
            return

        def linked(name: str) -> NewPart:
            path = job.new_path()
            try:
                os.link(names[name].resolve(), path)
            except OSError:  # another file system, one without links, or somebody else's file
                shutil.copy2(names[name], path)
            return NewPart(name, path, md5 or "")  # a linked file may not have been read whole

        is_folder = folder_is_there(source)
        names = {name: source / name for name, _ in files_below(source)} if is_folder else {target.name: source}
        missing_names = job.missing(names)
        for first in range(0, len(missing_names), LINKS_AT_ONCE):
            job.add([linked(name) for name in missing_names[first : first + LINKS_AT_ONCE]])
        part = job.folder / "pieces" if is_folder else job.path(target.name)
        job.publish({target: (part, md5)}, [source_of(source)], {})


def _download_all(output: Path, names: list[str], revision: str | None, *, force: bool) -> None:
    """Download the missing files, or all files of ``revision``, and compare them with the hub's sizes and sums."""
    absent = [name for name in names if revision is not None or force or not is_checked(output / name)]
    if not absent:
        return
    hub = HubDataset(REPOSITORY, revision or _earlier_commit(output) or DEFAULT_REVISION)
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
    """Return the commit that earlier files came from, even if those are not wanted now."""
    for path in sorted((output / "en").glob("*.manifest.json")):
        manifest = read_manifest(path.with_name(path.name.removesuffix(".manifest.json")))
        if manifest is not None and manifest.stage == STAGE and "commit" in manifest.options:
            return str(manifest.options["commit"])
    return None


def _came_as(target: Path, expected: Source) -> bool:
    """Return whether the manifest of a checked file names the size and the SHA-256 that the hub expects."""
    manifest = read_manifest(target)
    sources = manifest.inputs if manifest is not None and manifest.stage == STAGE else ()
    return [(source.bytes, source.identity) for source in sources] == [(expected.bytes, expected.identity)]


def _md5_of(target: Path) -> str | None:
    manifest = read_manifest(target)
    return None if manifest is None else manifest.outputs[0].md5


def _download(hub: HubDataset, target: Path, name: str, expected: Source, force: bool) -> None:
    """Fetch and check one file; an existing file without a manifest is only checked."""
    recipe = Recipe(STAGE, {"repository": hub.repository, "commit": hub.commit}, [expected])
    if is_checked(target) and _came_as(target, expected):
        _record(target, recipe, _md5_of(target))  # of another commit, which has the same bytes
        return
    if is_there(target) and not is_checked(target):
        _record(target, recipe, require_equal(target, expected, mend="delete it and fetch it again"))
        return
    with resumable_output(target, recipe, force=force) as job:
        if job is None:
            return
        if job.missing([target.name]):
            arrived = hub.download(name, job.new_path())
            job.add([NewPart(target.name, arrived, require_equal(arrived, expected, mend="fetch it again"))])
        job.publish({target: (job.path(target.name), job.done[target.name].md5)}, [expected], {})


@dataclass(frozen=True, kw_only=True)
class FetchCommand(OutputOptions):
    """Collect and check the benchmark's inputs, and list missing ones with their origins.

    Example: python -m data_prep fetch --output c4 --what train
    """

    output: Path
    """Folder for the files, which get the names and folders in the examples of the other commands."""
    what: tuple[ArtifactKind, ...] = NEEDED
    """Kinds of files. 'validation' is for choosing another validation subset; 'dataset' is the ready-made output of
    preprocess, 'llama31-dataset' that of Llama 3.1 8B."""
    shards: str | None = None
    """Range FIRST-LAST of training shards, in place of 768-1023."""
    from_: Annotated[Path | None, OptionName("from")] = None
    """Take the files from this folder, by link or copy, and nothing from the network."""
    revision: str | None = None
    """Branch, tag or commit of the Hugging Face dataset that all files must come from. By default existing files stay,
    and the others come from the same commit, or from the newest."""
    list: bool = False
    """Only list the files and whether they are there."""

    def run(self) -> None:
        for path in (self.output, *self.output.parents):
            if is_there(path) and not folder_is_there(path):
                raise InputError(
                    f"--output {self.output}: expected a folder, but {path} is a file; choose another name"
                )
        kinds = needed_files(self.what, self.shards)
        if self.from_ is not None and not folder_is_there(self.from_):
            raise InputError(f"--from {self.from_}: {folder_fault(self.from_)}")
        if self.from_ is not None and self.revision is not None:
            raise InputError(f"--revision {self.revision}: is of the Hugging Face dataset; leave it or --from out")
        if not self.list:
            fetch(self.output, kinds, source=self.from_, revision=self.revision, force=self.force)
        files = artifact_rows(self.output, kinds)
        print(json.dumps(files, indent=1) if self.json else format_table(files))
        require_all(self.output, files)
