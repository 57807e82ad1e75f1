"""What the exports have in common: when to write at all, and the sums and the manifest beside what was written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from checksums.md5_list import digest_folder, format_list
from stage.digest import md5_text
from stage.errors import InputError
from stage.manifest import is_current, record_of, require_intact, write_manifest
from stage.publish import write_text


def already_made(source: Path, output: Path, *, stage: str, options: Mapping[str, Any], force: bool) -> bool:
    """Whether ``output`` was made from ``source`` with these options and needs no work.

    Raises InputError when something else has its name, or when writing it would remove the source.
    """
    if source.resolve().is_relative_to(output.resolve()):
        raise InputError(f"{output}: holds the input {source}; choose another --output")
    if not force and is_current(output, stage=stage, options=options, inputs=[source]):
        return True
    if output.exists() and not force:
        raise InputError(
            f"{output}: exists and was made from another source or options, or its manifest is missing; "
            "choose another --output or pass --force"
        )
    return False


def write_sums_and_manifest(
    source: Path, output: Path, *, stage: str, options: Mapping[str, Any], packages: Sequence[str], started: float
) -> int:
    """Write ``OUTPUT.md5`` and ``OUTPUT.manifest.json``; returns the bytes of the output's files."""
    listing = format_list(digest_folder(output))
    write_text(output.with_name(output.name + ".md5"), listing)
    made_by = require_intact(source)
    written = record_of(output, output.name, md5_text(listing))
    write_manifest(
        output,
        stage=stage,
        options=options,
        inputs=[record_of(source, str(source), made_by.outputs[0].md5 if made_by else None)],
        outputs=[written],
        packages=packages,
        started=started,
    )
    return written.bytes
