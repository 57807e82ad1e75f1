"""The table of the files that the benchmark needs: the present ones, and the origins of the missing ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.preparation.artifacts import ARTIFACTS, DOWNLOAD_COMMANDS, HOW_TO_GET_IN, ArtifactKind
from foundation.disk_answers import is_there
from foundation.errors import CheckFailed
from foundation.outputs.manifest import read_manifest, record_of
from foundation.plain_text import folded, table_text


def is_checked(path: Path) -> bool:
    """Return whether a file or folder exists and is unchanged since it was checked or made."""
    manifest = read_manifest(path)
    if manifest is None or not is_there(path):
        return False
    records = [record for record in manifest.outputs if record.name == path.name]
    return any(record == record_of(path, path.name, record.md5) for record in records)


def artifact_rows(output: Path, kinds: Mapping[str, ArtifactKind]) -> list[dict[str, Any]]:
    """Return for each file whether it exists unchanged since it was checked or made, and its origin."""
    return [
        {
            "what": kind,
            "name": name,
            "there": is_checked(output / name),
            "origin": ARTIFACTS[kind].origin,
            "commands": [DOWNLOAD_COMMANDS[file] for file in ARTIFACTS[kind].downloads],
        }
        for name, kind in kinds.items()
    ]


def format_table(files: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per artifact with the number of existing files, then the origins.

    For missing files, the downloader's commands follow.
    """
    rows, origins = [], ["where they come from:"]
    for kind in dict.fromkeys(file["what"] for file in files):
        names = [file["name"] for file in files if file["what"] == kind]
        present = sum(file["there"] for file in files if file["what"] == kind)
        size = ARTIFACTS[kind].bytes * len(names) / len(ARTIFACTS[kind].files)
        unit, unit_name = next(unit for unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if size >= unit[0])
        name_range = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        rows.append([kind, str(present), str(len(names)), f"{size / unit:.1f} {unit_name}", name_range])
        origins.append(folded(f"  {kind}: {ARTIFACTS[kind].origin}"))
    lines = [table_text(["what", "there", "of", "size", "files"], rows, right={1, 2, 3}), *origins]
    absent = [file for file in files if not file["there"] and file["commands"]]
    downloads = dict.fromkeys(name for file in absent for name in ARTIFACTS[file["what"]].downloads)
    if downloads:
        lines += [folded(HOW_TO_GET_IN), *(f"{name}:\n    {DOWNLOAD_COMMANDS[name]}" for name in downloads)]
    return "\n".join(lines)


def require_all(output: Path, files: Sequence[Mapping[str, Any]]) -> None:
    """Raise CheckFailed if a file is missing or was not checked."""
    missing_files = [file for file in files if not file["there"]]
    if missing_files:
        manual = [file["name"] for file in missing_files if not ARTIFACTS[file["what"]].public]
        mend = f"; get {manual[0]} from where the table says and pass --from FOLDER" if manual else ""
        raise CheckFailed(
            f"{output}: {len(missing_files)} of {len(files)} files are missing or not checked, first "
            f"{missing_files[0]['name']}{mend}"
        )
