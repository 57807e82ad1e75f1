"""Compare all contents of a command's output with its manifest, by reading the output once."""

import os
from pathlib import Path

from checksums.folder_sums import ListComparison, digest_folder
from foundation.errors import InputError
from foundation.file_formats.md5_list import format_list, read_list
from foundation.outputs.digest import md5_file, md5_text
from foundation.outputs.manifest import read_manifest

ENDING = ".manifest.json"


def compare_with_manifest(folder: Path, path: Path) -> ListComparison:
    """Compare the outputs that the manifest at ``path`` names with the disk.

    ``folder`` is the folder that the outputs lie in. It may also be the manifest's output itself, if that is a folder,
    even if it was moved or renamed; then it alone is compared. For an output of many files, the comparison says whether
    all are unchanged; it names the changed ones if the list of their sums lies beside the manifest. Raises InputError
    for a file that is no manifest, or that lacks an MD5.
    """
    name = path.name.removesuffix(ENDING)
    manifest = read_manifest(path.with_name(name))
    if manifest is None:
        raise InputError(f"{path}: no such file")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    outputs = {record.name: (folder / record.name, record) for record in manifest.outputs}
    if name in outputs and not any(output.exists() for output, _ in outputs.values()):
        outputs = {".": (folder, outputs[name][1])}
    results: dict[str, list[str]] = {"matching": [], "changed": [], "missing": []}
    for record_name, (output, record) in outputs.items():
        if record.md5 is None or os.path.normpath(record_name).split("/")[0] in ("", ".."):
            raise InputError(f"{path}: has no MD5 of {record_name!r}, or that is not below the folder to verify")
        if not output.exists():
            results["missing"].append(record_name)
        elif _md5_of_contents(output) == record.md5:
            results["matching"].append(record_name)
        else:
            sums = path.with_name(f"{name}.md5")
            results["changed"] += _changed_files(output, record_name, record.md5, sums) or [record_name]
    return ListComparison(**results, may_differ=[], extra=[])


def _changed_files(folder: Path, name: str, md5: str, sums: Path) -> list[str]:
    """Return the files below ``place`` that differ from the list ``sums``, each below ``name``.

    Returns none if ``sums`` is not the list whose MD5 the manifest has.
    """
    if not folder.is_dir() or not sums.is_file() or md5_file(sums) != md5:
        return []
    digests, listed = digest_folder(folder), read_list(sums)
    return [
        os.path.normpath(f"{name}/{inner}") for inner in listed | digests if digests.get(inner) != listed.get(inner)
    ]


def _md5_of_contents(path: Path) -> str:
    """Return the MD5 of a file or folder in the form of a manifest's record."""
    return md5_text(format_list(digest_folder(path))) if path.is_dir() else md5_file(path)
