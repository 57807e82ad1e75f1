"""What a package says of where its results come from: code, data, checkpoint."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.results.recorded_run import RecordedRun
from stage.errors import InputError
from stage.git import REPOSITORY, tracked_files

NOT_NEEDED_TO_RUN = ("tests",)
MANIFEST = ".manifest.json"


def copy_code(destination: Path) -> None:
    """The repository's files as they are now, without tests and without hidden ones, which the
    official repository checker refuses."""
    for name in tracked_files():
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or name.parts[0] in NOT_NEEDED_TO_RUN or not (REPOSITORY / name).is_file():
            continue
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, destination / name)


def write_manifests(folder: Path, results: Sequence[RecordedRun]) -> list[str]:
    """Digests of data and checkpoint as each run stamped them, and the manifests of the stages that made them.

    Returns the names of the files; none for results without their runs' folders.
    """
    written: list[str] = []
    for number, result in enumerate(results):
        if not result.inputs:
            continue
        folder.mkdir(exist_ok=True)
        name = f"inputs_of_result_{number}.json"
        (folder / name).write_text(json.dumps(result.inputs, indent=1) + "\n", encoding="utf-8")
        written.append(name)
        for manifest in _manifests(result.inputs):
            if manifest.name not in written:
                shutil.copyfile(manifest, folder / manifest.name)
                written.append(manifest.name)
    return written


def _manifests(inputs: Mapping[str, Any]) -> Iterator[Path]:
    for entry in inputs.values():
        path = Path(str(entry.get("manifest", ""))) if isinstance(entry, dict) else Path()
        if path.name.endswith(MANIFEST) and path.is_file():
            yield path


def require_same_origin(results: Sequence[RecordedRun], commit: str | None) -> None:
    """Raises InputError where runs read other data than the first, or were made by other code than is packaged."""
    for result in results:
        ours, first = result.digests, results[0].digests
        for name in sorted(ours.keys() & first.keys()):
            if None not in (ours[name], first[name]) and ours[name] != first[name]:
                raise InputError(
                    f"{result.path}: {name} has MD5 {ours[name]}, but {first[name]} in {results[0].path}; the runs of "
                    "a submission read the same data and checkpoint"
                )
        made_by = result.environment.get("commit")
        if made_by is not None and made_by != commit:
            raise InputError(
                f"{result.path}: made by commit {made_by}, but the code to be packaged is {commit}; check that out"
            )


def notes_on_origin(results: Sequence[RecordedRun], commit: str | None) -> Iterator[str]:
    """What the submitter should know, though nobody refuses it."""
    without = [result.path for result in results if not result.inputs]
    if without:
        yield f"no manifests of data and checkpoint: {without[0]} is not in the folder of its run"
    if any("commit" not in result.environment for result in results):
        yield "the code packaged is this repository's; whether it made these results is not in their logs"
    if commit is None or commit.endswith("-dirty"):
        yield "the code packaged has changes that are in no commit; commit them and package again"
