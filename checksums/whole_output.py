"""All contents of a stage's output against its manifest: the part of verifying that costs reading it once."""

import os
from pathlib import Path

from checksums.md5_list import ListComparison, digest_folder, format_list
from stage.digest import md5_file, md5_text
from stage.errors import InputError
from stage.manifest import manifest_path, read_manifest, require_intact

ENDING = ".manifest.json"


def is_manifest(path: Path) -> bool:
    """Whether a file is, by its name, a stage's manifest rather than a list of sums."""
    return path.name.endswith(ENDING)


def compare_with_manifest(folder: Path, path: Path) -> ListComparison:
    """What the manifest at ``path`` names, of which the contents lie in ``folder``; of a folder of many files, whether
    all of it is as it was.

    Raises InputError for a file that is no manifest, or has no MD5 of something.
    """
    manifest = read_manifest(path.with_name(path.name.removesuffix(ENDING)))
    if manifest is None:
        raise InputError(f"{path}: no such file")
    matching, changed, missing = [], [], []
    for record in manifest.outputs:
        place = folder / record.name
        if record.md5 is None or os.path.normpath(record.name).split("/")[0] in ("", ".."):
            raise InputError(f"{path}: has no MD5 of {record.name!r}, or that is not below the folder to verify")
        if not place.exists():
            missing.append(record.name)
        elif _md5_of_contents(place) == record.md5:
            matching.append(record.name)
        else:
            changed.append(record.name)
    return ListComparison(matching, changed, missing, may_differ=[], extra=[])


def _md5_of_contents(path: Path) -> str:
    """As in a manifest's record."""
    return md5_text(format_list(digest_folder(path))) if path.is_dir() else md5_file(path)


def require_whole(output: Path) -> None:
    """Raise InputError where ``output`` has no manifest, or is not to the bit what it says."""
    manifest = require_intact(output)
    if manifest is None:
        raise InputError(f"{output}: no {manifest_path(output).name} beside it, so nothing says what it should be")
    for record in manifest.outputs:
        path = output.parent / record.name
        found = _md5_of_contents(path)
        if found != record.md5:
            raise InputError(
                f"{path}: MD5 {found}, but {manifest_path(output).name} says {record.md5}; it was changed since, "
                "make or copy it again"
            )
