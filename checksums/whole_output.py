"""Compare all contents of a command's output with its manifest, by reading the output once."""

import os
from collections.abc import Iterable
from pathlib import Path

from checksums.folder_sums import ListComparison, digest_folder
from foundation.disk_answers import file_is_there, folder_is_there, is_there
from foundation.errors import InputError
from foundation.file_formats.md5_list import format_list, read_list
from foundation.outputs.digest import md5_file, md5_text
from foundation.outputs.manifest import read_manifest
from foundation.regular_files import folder_fault

ENDING = ".manifest.json"


def compare_with_manifest(folder: Path, path: Path) -> ListComparison:
    """Compare the outputs that the manifest at ``path`` names with the disk.

    ``folder`` is the folder that the outputs lie in. It may also be the manifest's output itself, if that is a folder,
    even if it was moved or renamed; then it alone is compared. Every file of a folder counts. Its changed files are
    named if the list of their sums lies beside the manifest; otherwise the folder is. Raises InputError for a file that
    is no manifest, or that lacks an MD5.
    """
    name = path.name.removesuffix(ENDING)
    manifest = read_manifest(path.with_name(name))
    if manifest is None:
        raise InputError(f"{path}: no such file")
    if not folder_is_there(folder):
        raise InputError(f"{folder}: {folder_fault(folder)}")
    outputs = {record.name: (folder / record.name, record) for record in manifest.outputs}
    if name in outputs and not any(is_there(output) for output, _ in outputs.values()):
        outputs = {".": (folder, outputs[name][1])}
    results: dict[str, list[str]] = {"matching": [], "changed": [], "missing": []}
    for record_name, (output, record) in outputs.items():
        if record.md5 is None or os.path.normpath(record_name).split("/")[0] in ("", ".."):
            raise InputError(f"{path}: has no MD5 of {record_name!r}, or that is not below the folder to verify")
        if not is_there(output):
            results["missing"].append(record_name)
            continue
        digests = digest_folder(output) if folder_is_there(output) else {".": md5_file(output)}
        md5 = md5_text(format_list(digests)) if folder_is_there(output) else digests["."]
        if md5 == record.md5:
            results["matching"] += _below(record_name, digests)
            continue
        listed = _listed_sums(path.with_name(f"{name}.md5"), record.md5) if folder_is_there(output) else {}
        equal = {inner for inner, md5 in listed.items() if digests.get(inner) == md5}
        results["matching"] += _below(record_name, sorted(equal))
        results["changed"] += (
            _below(record_name, sorted((listed | digests).keys() - equal)) if listed else [record_name]
        )
    return ListComparison(**results, may_differ=[], extra=[])


def _listed_sums(path: Path, md5: str) -> dict[str, str]:
    """Return the sums of the files in the list at ``path``; none unless it is the list whose MD5 the manifest has."""
    return read_list(path) if file_is_there(path) and md5_file(path) == md5 else {}


def _below(name: str, files: Iterable[str]) -> list[str]:
    """Return the paths of an output's files, relative to the folder that the output lies in."""
    return [os.path.normpath(f"{name}/{file}") for file in files]
