"""An output that is a folder of pieces, published with the list of their MD5 sums beside it: OUTPUT and OUTPUT.md5."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from checksums.md5_list import files_below, format_list
from stage.errors import InputError
from stage.outputs.digest import md5_text
from stage.outputs.manifest import Source
from stage.outputs.publish import beside
from stage.outputs.resumable_output import NewPiece, ResumableOutput


def outputs_of(output: Path) -> list[Path]:
    """Return the folder and its list of sums."""
    return [output, beside(output, ".md5")]


def publish_with_sums(
    names: Iterable[str],
    small: Mapping[str, bytes],
    work: ResumableOutput,
    inputs_now: Callable[[], Sequence[Source]],
    facts: Mapping[str, Any],
) -> list[str]:
    """Write the pieces ``small``, publish them together with the pieces ``names``, and return all names.

    Before publishing, each piece must be on the disk as it was written, with no other file beside them. ``inputs_now``
    looks at the inputs again, at the end. Raises InputError, with nothing published, if a piece or an input has changed
    or there is another file.
    """
    work.reload()
    work.add([_written(name, small[name], work) for name in work.missing(small)])
    names = sorted([*names, *small], key=os.fsencode)
    if lost := work.missing(names):
        raise InputError(f"{work.path(lost[0])}: changed or removed after it was written; run the command again")
    pieces = work.path("")
    if other := sorted(files_below(pieces).keys() - set(names)):
        raise InputError(f"{pieces / other[0]}: no file of this output; move it away and run the command again")
    listing = format_list({name: work.done[name].md5 for name in names})
    sums = work.new_path()
    sums.write_text(listing, encoding="utf-8", errors="surrogateescape")
    places = zip(outputs_of(work.output), (pieces, sums), strict=True)
    work.publish({final: (place, md5_text(listing)) for final, place in places}, inputs_now(), facts)
    return names


def _written(name: str, content: bytes, work: ResumableOutput) -> NewPiece:
    path = work.new_path()
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(work.path(name))) from error
    return NewPiece(name, path, hashlib.md5(content, usedforsecurity=False).hexdigest())
