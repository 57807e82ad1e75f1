"""What lies beside every output: the list of MD5 sums, and the manifest that says what it was made of.

    OUTPUT/  OUTPUT.md5  OUTPUT.manifest.json

An output whose manifest still holds is not made again; one that holds something else is only replaced by force.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checksums.md5_list import files_below, read_list
from stage.digest import md5_text
from stage.errors import InputError
from stage.limits.replacing import require_replaceable
from stage.manifest import Manifest, Record, is_current, record_of, write_manifest
from stage.publish import remove_left_partials, write_text


def already_made(source: Path, output: Path, *, stage: str, options: Mapping[str, Any], force: bool) -> bool:
    """Whether ``output`` was made from ``source`` with these options and needs no work; with ``force`` it always does.

    Raises InputError when something else has its name, or with ``force``, what this stage did not make.
    """
    if force:
        _require_all_ours(output, require_replaceable(output, stage=stage, inputs=[source]))
        return False
    if is_current(output, stage=stage, options=options, inputs=[source]):
        remove_left_partials(output)  # killed while it cleaned up, perhaps
        return True
    if os.path.lexists(output):
        raise InputError(
            f"{output}: exists and was made from another source or options, or its manifest is missing; "
            "choose another --output or pass --force"
        )
    return False


def _require_all_ours(output: Path, manifest: Manifest | None) -> None:
    """Raise InputError for a file of the user's in an output that is to be replaced."""
    sums = sums_path(output)
    if manifest is None or not sums.is_file():
        return
    listed = read_list(sums)
    for name in files_below(output):
        if name not in listed:
            raise InputError(f"{output / name}: not made by {manifest.stage}; move it away, or choose another --output")


def sums_path(output: Path) -> Path:
    """Where the list of an output's MD5 sums lies."""
    return output.with_name(output.name + ".md5")


def write_sums_and_manifest(
    output: Path,
    files: Path,
    listing: str,
    *,
    stage: str,
    options: Mapping[str, Any],
    source: Path,
    source_made_by: Manifest | None,
    packages: Sequence[str],
    started: float,
) -> int:
    """Write ``listing`` to ``OUTPUT.md5``, and ``OUTPUT.manifest.json``; returns the bytes of the output's files.

    ``files``: where these lie. Both are written before the files get their place: a process that is killed in between
    leaves nothing under the output's name that no manifest knows.
    ``source_made_by`` is the source's own manifest, if it has one: the source's sum is taken from it.
    """
    write_text(sums_path(output), listing)
    inputs = [record_of(source, str(source), source_made_by.outputs[0].md5 if source_made_by else None)]
    return write_folder_manifest(
        output, files, listing, stage=stage, options=options, inputs=inputs, packages=packages, started=started
    )


def write_folder_manifest(
    output: Path,
    files: Path,
    listing: str,
    *,
    stage: str,
    options: Mapping[str, Any],
    inputs: Sequence[Record],
    packages: Sequence[str],
    started: float,
) -> int:
    """Write the manifest of a folder whose files, now in ``files``, have these sums; returns their bytes."""
    written = record_of(files, output.name, md5_text(listing))
    write_manifest(
        output,
        stage=stage,
        options=options,
        inputs=inputs,
        outputs=[written],
        packages=packages,
        started=started,
    )
    return written.bytes
