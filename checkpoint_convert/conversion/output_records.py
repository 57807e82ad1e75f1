"""What lies beside every output: the list of MD5 sums, and the manifest that says what it was made of.

    OUTPUT/  OUTPUT.md5  OUTPUT.manifest.json

An output whose manifest still holds is not made again; one that holds something else is only replaced by force.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stage.digest import md5_text
from stage.errors import InputError
from stage.manifest import Manifest, Record, is_current, record_of, write_manifest
from stage.publish import write_text


def require_apart(source: Path, output: Path) -> None:
    """Raise InputError where writing ``output`` would remove ``source``."""
    if source.resolve().is_relative_to(output.resolve()):
        raise InputError(f"{output}: holds the input {source}; choose another --output")


def already_made(
    source: Path, output: Path, *, stage: str, options: Mapping[str, Any], force: bool, unfinished: bool = False
) -> bool:
    """Whether ``output`` was made from ``source`` with these options and needs no work; with ``force`` it always does.

    Raises InputError when something else has its name; not where ``unfinished`` says that it can be our own work.
    """
    if force:
        return False
    if is_current(output, stage=stage, options=options, inputs=[source]):
        return True
    if output.exists() and not unfinished:
        raise InputError(
            f"{output}: exists and was made from another source or options, or its manifest is missing; "
            "choose another --output or pass --force"
        )
    return False


def write_sums_and_manifest(
    output: Path,
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

    ``source_made_by`` is the source's own manifest, if it has one: the source's sum is taken from it.
    """
    write_text(output.with_name(output.name + ".md5"), listing)
    inputs = [record_of(source, str(source), source_made_by.outputs[0].md5 if source_made_by else None)]
    return write_folder_manifest(
        output, listing, stage=stage, options=options, inputs=inputs, packages=packages, started=started
    )


def write_folder_manifest(
    output: Path,
    listing: str,
    *,
    stage: str,
    options: Mapping[str, Any],
    inputs: Sequence[Record],
    packages: Sequence[str],
    started: float,
) -> int:
    """Write the manifest of a folder whose files have the sums in ``listing``; returns their bytes."""
    written = record_of(output, output.name, md5_text(listing))
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
