"""Collect the benchmark's inputs in one folder: from Hugging Face, or from a folder that has them.

Each file, and the checkpoint's folder, is an output of its own (``foundation.outputs.resumable_output``): it has its
final name only once it is whole and checked, and a manifest beside it records its origin, by the commit and by its
content.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from data_prep.preparation.artifacts import (
    ARTIFACTS,
    DOWNLOAD_COMMANDS,
    DOWNLOAD_LISTS,
    HOW_TO_GET_IN,
    NEEDED,
    REPOSITORY,
    What,
    wanted_files,
)
from data_prep.preparation.downloaded_sums import compared_md5, listed_sum
from foundation.cli import OutputOptions
from foundation.errors import CheckFailed, InputError, first_line
from foundation.optional_packages import import_optional
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
from foundation.outputs.resumable_output import NewPart, resumable_output
from foundation.plain_text import table_text
from foundation.progress import progress

STAGE = "fetch"
DOWNLOADS_AT_ONCE = 4
LINKS_AT_ONCE = 1000
DEFAULT_REVISION = "main"


class Hub:
    """One dataset at one commit: ``revision`` (a branch, a tag or a commit) is looked up once.

    Every method raises InputError, in one line, if the hub cannot be reached or refuses.
    """

    def __init__(self, repository: str, revision: str) -> None:
        self.repository = repository
        self._hub = import_optional("huggingface_hub", "huggingface_hub", "fetch")
        utils = import_optional("huggingface_hub.utils", "huggingface_hub", "fetch")
        utils.disable_progress_bars()
        utils.logging.set_verbosity_error()
        with self._asking():
            self.commit: str = self._hub.HfApi().dataset_info(repository, revision=revision).sha

    def describe(self, names: Sequence[str]) -> dict[str, Source]:
        """Return size and SHA-256 of each file, by its name. Raises InputError for a file that does not exist."""
        with self._asking():
            found = self._hub.HfApi().get_paths_info(
                self.repository, list(names), repo_type="dataset", revision=self.commit
            )
        files = {
            entry.path: Source(
                f"{self.repository}@{self.commit}/{entry.path}", 1, entry.lfs.size, f"sha256:{entry.lfs.sha256}"
            )
            for entry in found
            if entry.lfs is not None
        }
        for name in names:
            if name not in files:
                raise InputError(f"{self.repository} at {self.commit}: no large file {name}; try another --revision")
        return files

    def download(self, name: str, folder: Path) -> Path:
        """Fetch a file to ``folder/name``. An interrupted download resumes."""
        with self._asking():
            return Path(
                self._hub.hf_hub_download(
                    self.repository, name, repo_type="dataset", revision=self.commit, local_dir=folder
                )
            )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        # The library lets its HTTP client's errors through, and changes the client from version to version.
        try:
            yield
        except Exception as error:
            raise InputError(
                f"Hugging Face, dataset {self.repository}: {type(error).__name__}: {first_line(error)}; check the "
                "network, or take the files from a folder with --from"
            ) from error


def fetch(
    output: Path,
    wanted: Mapping[str, What],
    *,
    source: Path | None = None,
    revision: str | None = None,
    force: bool = False,
) -> None:
    """Bring the available files of ``wanted`` (``wanted_files``) to ``output``, from the folder ``source`` or from the
    hub.

    ``revision`` None: existing files stay, and the others come from the same commit, or else the newest. ``force``:
    files that fetch brought from another commit or folder are replaced. Raises InputError when the hub cannot be
    reached, InputError or CheckFailed for a wrong file.
    """
    if source is not None and not source.is_dir():
        raise InputError(f"--from {source}: no such folder")
    public = [name for name, what in wanted.items() if ARTIFACTS[what].public and source is None]
    for name, what in wanted.items():
        path = output / name
        if name not in public and path.exists() and not is_checked(path):
            _record(path, Recipe(STAGE, {}, [source_of(path)]), _checked_md5(path, what, source))
    if source is None:
        _download_all(output, public, revision, force=force)
        return
    places = {name: _find(source, name, what) for name, what in wanted.items()}
    available = {name: place for name, place in places.items() if place is not None}
    for name in [name for name in available if not force and (output / name).exists()]:
        _require_same(available.pop(name), output / name)
    with progress("take", len(available), "files") as advance:
        for name, place in available.items():
            _take(place, output / name, _checked_md5(place, wanted[name], source), force=force)
            advance(1)


def is_checked(path: Path) -> bool:
    """Return whether a file or folder exists and is unchanged since it was checked or made."""
    manifest = read_manifest(path)
    if manifest is None or not path.exists():
        return False
    return any(one == record_of(path, path.name, one.md5) for one in manifest.outputs if one.name == path.name)


def _checked_md5(path: Path, what: What, source: Path | None) -> str | None:
    """Check a file by its kind, and by a list of sums beside it or in ``source``; return its MD5 if that was compared.

    Raises InputError or CheckFailed for a wrong file. Says so if a download's list should lie there and does not.
    """
    artifact = ARTIFACTS[what]
    md5 = artifact.check(path)
    if path.is_dir() or md5 is not None:
        return md5
    listed = listed_sum(path, [] if source is None else [source])
    if listed is None and artifact.brings_sums:
        lists = " or ".join(f"{DOWNLOAD_LISTS[name]}" for name in artifact.downloads)
        print(f"{path}: its MD5 was not compared, for no list has it; put {lists} beside it", file=sys.stderr)
    return compared_md5(path, listed)


def _require_same(path: Path, target: Path) -> None:
    """Raise CheckFailed if a file of the folder ``--from`` is another than the one that is there."""
    if path.is_dir() or target.is_dir() or path.samefile(target):
        return
    if md5_samples(path) != md5_samples(target):
        raise CheckFailed(f"{target}: is there, and {path} is another file; --force replaces what fetch brought")


def _record(path: Path, recipe: Recipe, md5: str | None) -> None:
    """Write the manifest of an existing file that was checked, unless it has another command's manifest."""
    manifest = read_manifest(path)
    if manifest is None or manifest.stage == STAGE:
        write_manifest(path, made_by(recipe, [record_of(path, path.name, md5)], wall_s=0))


def _find(source: Path, name: str, what: What) -> Path | None:
    """Return the file in ``source``, by its name here or at its origin; None if there is none."""
    names = (name, Path(name).name, ARTIFACTS[what].published_name or name)
    return next((source / name for name in names if (source / name).exists()), None)


def _take(found: Path, target: Path, md5: str | None, *, force: bool) -> None:
    """Make ``target`` of links to ``found``, a file or a folder, or of copies across file systems."""
    with resumable_output(target, Recipe(STAGE, {}, [source_of(found)]), inputs=[found], force=force) as job:
        if job is None:
            return

        def linked(name: str) -> NewPart:
            path = job.new_path()
            try:
                os.link(names[name].resolve(), path)
            except OSError:  # another file system, one without links, or somebody else's file
                shutil.copy2(names[name], path)
            return NewPart(name, path, md5 or "")  # nobody has read all of what was linked

        is_folder = found.is_dir()
        names = {name: found / name for name, _ in files_below(found)} if is_folder else {target.name: found}
        missing = job.missing(names)
        for first in range(0, len(missing), LINKS_AT_ONCE):
            job.add([linked(name) for name in missing[first : first + LINKS_AT_ONCE]])
        place = job.folder / "pieces" if is_folder else job.path(target.name)
        job.publish({target: (place, md5)}, [source_of(found)], {})


def _download_all(output: Path, names: list[str], revision: str | None, *, force: bool) -> None:
    """Download the missing files, or all files of ``revision``, and compare them with the hub's sizes and sums."""
    absent = [name for name in names if revision is not None or force or not is_checked(output / name)]
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
    """Return the commit that earlier files came from, even if those are not wanted now."""
    for path in sorted((output / "en").glob("*.manifest.json")):
        manifest = read_manifest(path.with_name(path.name.removesuffix(".manifest.json")))
        if manifest is not None and manifest.stage == STAGE and "commit" in manifest.options:
            return str(manifest.options["commit"])
    return None


def _download(hub: Hub, target: Path, name: str, expected: Source, force: bool) -> None:
    """Fetch and check one file; an existing file without a manifest is only checked."""
    recipe = Recipe(STAGE, {"repository": hub.repository, "commit": hub.commit}, [expected])
    if target.exists() and not is_checked(target):
        _record(target, recipe, _require_equal(target, expected, mend="delete it and fetch it again"))
        return
    with resumable_output(target, recipe, force=force) as job:
        if job is None:
            return
        if job.missing([target.name]):
            arrived = hub.download(name, job.new_path())
            job.add([NewPart(target.name, arrived, _require_equal(arrived, expected, mend="fetch it again"))])
        job.publish({target: (job.path(target.name), job.done[target.name].md5)}, [expected], {})


def _require_equal(path: Path, expected: Source, *, mend: str) -> str:
    """Compare size and SHA-256 with the hub's; return the MD5. Raises CheckFailed if they differ."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
            md5.update(block)
    found, due = (path.stat().st_size, f"sha256:{sha256.hexdigest()}"), (expected.bytes, expected.identity)
    if found != due:
        raise CheckFailed(f"{path}: {found[0]} bytes, {found[1]}; the hub has {due[0]} bytes, {due[1]}; {mend}")
    return md5.hexdigest()


def files_there(output: Path, wanted: Mapping[str, What]) -> list[dict[str, Any]]:
    """Return for each file whether it exists unchanged since it was checked or made, and its origin."""
    return [
        {
            "what": what,
            "name": name,
            "there": is_checked(output / name),
            "origin": ARTIFACTS[what].origin,
            "commands": [DOWNLOAD_COMMANDS[file] for file in ARTIFACTS[what].downloads],
        }
        for name, what in wanted.items()
    ]


def format_table(files: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per artifact with the number of existing files, then the origins.

    For missing files, the downloader's commands follow.
    """
    rows, origins = [], ["where they come from:"]
    for what in dict.fromkeys(file["what"] for file in files):
        names = [file["name"] for file in files if file["what"] == what]
        there = sum(file["there"] for file in files if file["what"] == what)
        size = ARTIFACTS[what].bytes * len(names) / len(ARTIFACTS[what].files)
        unit, unit_name = next(unit for unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if size >= unit[0])
        shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        rows.append([what, str(there), str(len(names)), f"{size / unit:.1f} {unit_name}", shown])
        origins.append(f"  {what}: {ARTIFACTS[what].origin}")
    lines = [table_text(["what", "there", "of", "size", "files"], rows, right={1, 2, 3}), *origins]
    absent = [file for file in files if not file["there"] and file["commands"]]
    downloads = dict.fromkeys(name for file in absent for name in ARTIFACTS[file["what"]].downloads)
    if downloads:
        lines += [HOW_TO_GET_IN, *(f"{name}:\n    {DOWNLOAD_COMMANDS[name]}" for name in downloads)]
    return "\n".join(lines)


def require_all(output: Path, files: Sequence[Mapping[str, Any]]) -> None:
    """Raise CheckFailed if a file is missing or was not checked."""
    missing = [file for file in files if not file["there"]]
    if missing:
        manual = [file["name"] for file in missing if not ARTIFACTS[file["what"]].public]
        mend = f"; get {manual[0]} from where the table says and pass --from FOLDER" if manual else ""
        raise CheckFailed(
            f"{output}: {len(missing)} of {len(files)} files are missing or not checked, first "
            f"{missing[0]['name']}{mend}"
        )


@dataclass(frozen=True, kw_only=True)
class FetchCommand(OutputOptions):
    """Collect and check the benchmark's inputs, and list missing ones with their origins.

    Example: python -m data_prep fetch --output c4 --what train
    """

    output: Path
    """Folder for the files, which get the names and places in the examples of the other commands."""
    what: tuple[What, ...] = NEEDED
    """Kinds of files. 'validation' is for choosing another validation subset; 'dataset' is the ready-made output of
    preprocess, 'llama31-dataset' that of Llama 3.1 8B."""
    shards: str | None = None
    """Range FIRST-LAST of training shards, in place of 768-1023."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Take the files from this folder, by link or copy, and nothing from the network."""
    revision: str | None = None
    """Branch, tag or commit of the Hugging Face dataset that all files must come from. By default existing files stay,
    and the others come from the same commit, or from the newest."""
    list: bool = False
    """Only list the files and whether they are there."""

    def run(self) -> None:
        wanted = wanted_files(self.what, self.shards)
        if not self.list:
            fetch(self.output, wanted, source=self.from_, revision=self.revision, force=self.force)
        files = files_there(self.output, wanted)
        print(json.dumps(files, indent=1) if self.json else format_table(files))
        require_all(self.output, files)
