"""Bring the benchmark's inputs together in one folder: from Hugging Face, or from a folder that has them.

A file has its final name only once it is whole and checked. ``fetch.manifest.json`` remembers what was checked, so
that the next call skips it; a call that is killed loses the files it was downloading.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from data_prep.preparation.artifacts import ARTIFACTS, HOW_TO_GET_IN, REPOSITORY, Artifact, What
from data_prep.preparation.downloader import FOLDER as DOWNLOADED
from data_prep.preparation.downloader import Downloader
from data_prep.preparation.hub import Hub, HubFile
from stage.errors import CheckFailed, InputError
from stage.lock import only_one_in
from stage.manifest import Record, read_manifest, record_of, write_manifest
from stage.progress import progress
from stage.publish import finish, partial_path, published_file, published_folder

ARRIVING = ".fetch"
"""Below the output folder: what is being downloaded."""
DOWNLOADS_AT_ONCE = 4
DEFAULT_REVISION = "main"


@dataclass(frozen=True)
class Wanted:
    """One file, or the checkpoint's folder."""

    what: What
    name: str

    @property
    def artifact(self) -> Artifact:
        return ARTIFACTS[self.what]


def wanted_files(what: Sequence[What], train_shards: Sequence[str] | None) -> list[Wanted]:
    """All files of ``what``; of the training shards those given, or the benchmark's."""
    return [
        Wanted(kind, name)
        for kind in what
        for name in (train_shards if kind == "train" and train_shards is not None else ARTIFACTS[kind].files)
    ]


class Ledger:
    """``fetch.manifest.json``: what was checked, and as which commit of the Hugging Face dataset."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._started = time.monotonic()
        manifest = read_manifest(output / "fetch")
        self._records: dict[str, Record] = {record.name: record for record in manifest.outputs} if manifest else {}
        self._sha256: dict[str, str] = dict(manifest.options["sha256"]) if manifest else {}
        self.commit: str | None = manifest.options["commit"] if manifest else None

    def holds(self, name: str) -> bool:
        """Whether the file is there as it was when it was checked."""
        path, record = self.output / name, self._records.get(name)
        return record is not None and path.exists() and record_of(path, name, record.md5) == record

    def add(self, name: str, *, md5: str | None = None, sha256: str | None = None) -> None:
        """Note that a file was checked just now."""
        self._records[name] = record_of(self.output / name, name, md5)
        if sha256 is not None:
            self._sha256[name] = sha256
        write_manifest(
            self.output / "fetch",
            stage="fetch",
            options={"repository": REPOSITORY, "commit": self.commit, "sha256": self._sha256},
            inputs=[],
            outputs=list(self._records.values()),
            packages=[],
            started=self._started,
        )


def fetch(
    output: Path,
    wanted: Sequence[Wanted],
    *,
    source: Path | None = None,
    revision: str | None = None,
    downloader: Downloader | None = None,
) -> None:
    """Bring the files of ``wanted`` that can be had to ``output``: from the folder ``source``, by the user's
    ``downloader``, or else from the hub.

    ``revision`` None: the commit of earlier calls, or the newest. Raises InputError when the hub cannot be reached,
    and InputError or CheckFailed for a file that is not what it should be.
    """
    if source is not None and not source.is_dir():
        raise InputError(f"--from {source}: no such folder")
    output.mkdir(parents=True, exist_ok=True)
    with only_one_in(output, "wait for it to end", name=".fetch.lock"):
        ledger = Ledger(output)
        shutil.rmtree(output / ARRIVING, ignore_errors=True)
        try:
            if source is not None:
                _check_in_link_or_copy_all(ledger, wanted)
                _take(ledger, source, wanted)
            elif downloader is not None:
                _bring_and_take(ledger, downloader, wanted)
            else:
                _check_in_link_or_copy_all(ledger, [file for file in wanted if not file.artifact.public])
                _download_all(ledger, [file.name for file in wanted if file.artifact.public], revision)
        finally:
            shutil.rmtree(output / ARRIVING, ignore_errors=True)


def _check_in_link_or_copy_all(ledger: Ledger, wanted: Sequence[Wanted]) -> None:
    """Check files that are there, but that the ledger does not know as they are."""
    for file in wanted:
        path = ledger.output / file.name
        if path.exists() and not ledger.holds(file.name):
            ledger.add(file.name, md5=file.artifact.check(path))


def _take(ledger: Ledger, source: Path, wanted: Sequence[Wanted]) -> None:
    """Check files of ``source``, by their names here or at their origin, and link them, or copy across file systems."""
    absent = [file for file in wanted if not ledger.holds(file.name)]
    found = {file: path for file in absent if (path := _find(source, file)) is not None}
    with progress("take", len(found), "files") as advance:
        for file, path in found.items():
            md5 = file.artifact.check(path)
            _link_or_copy_all(path, ledger.output / file.name)
            ledger.add(file.name, md5=md5)
            advance(1)


def _bring_and_take(ledger: Ledger, downloader: Downloader, wanted: Sequence[Wanted]) -> None:
    """What was brought and checked is not asked for again; wanted files that lie in it as such are taken."""
    for download in downloader.downloads:
        name = f"{DOWNLOADED}/{PurePosixPath(download.metadata).stem}"
        folder = ledger.output / name
        if not ledger.holds(name):
            ledger.add(name, md5=downloader.bring(download, folder))
        _take(ledger, folder, wanted)


def _find(source: Path, file: Wanted) -> Path | None:
    names = (file.name, Path(file.name).name, file.artifact.published_name)
    return next((source / name for name in names if name is not None and (source / name).exists()), None)


def _link_or_copy_all(found: Path, target: Path) -> None:
    if found.is_dir():
        with published_folder(target) as partial:
            shutil.copytree(found, partial, copy_function=_link_or_copy, dirs_exist_ok=True)
    else:
        with published_file(target) as partial:
            partial.unlink(missing_ok=True)
            _link_or_copy(found, partial)


def _link_or_copy(found: Path | str, target: Path | str) -> None:
    try:
        os.link(Path(found).resolve(), target)
    except OSError:  # another file system, one without links, or somebody else's file
        shutil.copy2(found, target)


def _download_all(ledger: Ledger, names: Sequence[str], revision: str | None) -> None:
    """Download what the ledger does not hold, comparing size and SHA-256 with what the hub says."""
    absent = [name for name in names if not ledger.holds(name)]
    if not absent:
        return
    hub = Hub(REPOSITORY, revision or ledger.commit or DEFAULT_REVISION)
    ledger.commit = hub.commit
    remote = hub.describe(absent)
    with (
        progress("fetch", sum(file.bytes for file in remote.values()), "bytes") as advance,
        ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool,
    ):
        jobs = {pool.submit(_download, hub, ledger.output, name, remote[name]): name for name in absent}
        try:
            for job in as_completed(jobs):
                job.result()
                ledger.add(jobs[job], sha256=remote[jobs[job]].sha256)
                advance(remote[jobs[job]].bytes)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # downloads that have begun end first
            raise


def _download(hub: Hub, output: Path, name: str, expected: HubFile) -> None:
    """Fetch and check one file; one that is there already is checked only."""
    target = output / name
    if target.exists():
        _require_equal(target, expected, mend="delete it and fetch it again")
        return
    arrived = hub.download(name, output / ARRIVING)
    _require_equal(arrived, expected, mend="fetch it again")
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(arrived, partial_path(target))
    finish(target)


def _require_equal(path: Path, expected: HubFile, *, mend: str) -> None:
    found = path.stat().st_size
    if found != expected.bytes:
        raise CheckFailed(f"{path}: {found} bytes, the hub has {expected.bytes}; {mend}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected.sha256:
        raise CheckFailed(f"{path}: SHA-256 {digest}, the hub has {expected.sha256}; {mend}")


def files_there(output: Path, wanted: Sequence[Wanted]) -> dict[Wanted, bool]:
    """Whether each file is there and was checked."""
    ledger = Ledger(output)
    return {file: ledger.holds(file.name) for file in wanted}


def format_table(there: Mapping[Wanted, bool]) -> str:
    """One line per artifact: how many of its files are there, and where they come from; the downloader's commands for
    those that are not."""
    lines = [f"{'what':<18} {'there':>5} {'of':>5} {'size':>8}  files, and where they come from"]
    for what in dict.fromkeys(file.what for file in there):
        files = [file for file in there if file.what == what]
        artifact = ARTIFACTS[what]
        size = artifact.bytes * len(files) / len(artifact.files)
        names = files[0].name if len(files) == 1 else f"{files[0].name} to {files[-1].name}"
        found = sum(there[file] for file in files)
        lines.append(f"{what:<18} {found:>5} {len(files):>5} {_format_size(size):>8}  {names}")
        lines.append(f"{'':<39}  {artifact.origin}")
    absent = [file.artifact for file, found in there.items() if not found]
    downloads = dict.fromkeys(download for artifact in absent for download in artifact.downloads)
    if downloads:
        lines.append(HOW_TO_GET_IN)
        lines += [f"{download.file}:\n    {download.command}" for download in downloads]
    return "\n".join(lines)


def table_as_json(there: Mapping[Wanted, bool]) -> list[dict[str, Any]]:
    """What the table says, as one entry for each file."""
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
    unit, name = next((unit, name) for unit, name in ((1e12, "TB"), (1e9, "GB"), (0, "MB")) if size >= unit)
    return f"{size / (unit or 1e6):.1f} {name}"


def require_all(output: Path, there: Mapping[Wanted, bool]) -> None:
    """Raise CheckFailed when a file is not there, or was not checked."""
    missing = [file for file, found in there.items() if not found]
    if missing:
        manual = [file for file in missing if not file.artifact.public]
        mend = f"; get {manual[0].name} from where the table says and pass --from FOLDER" if manual else ""
        raise CheckFailed(
            f"{output}: {len(missing)} of {len(there)} files are missing or not checked, first {missing[0].name}{mend}"
        )
