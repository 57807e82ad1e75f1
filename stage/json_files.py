"""JSON files read into dataclasses: every field of its type, and never more bytes than a bound."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stage.errors import InputError
from stage.regular_files import UnfitFile, read_regular

Made = TypeVar("Made")
LARGEST_JSON = 1 << 26
"""Bytes; a manifest of 1,024 shards has 300 kB, a checkpoint's index some MB."""


def read_json(path: Path, kind: type[Made], *, mend: str = "make it again", largest: int = LARGEST_JSON) -> Made:
    """Read ``path`` as a ``kind``: a dataclass, or anything else that msgspec knows.

    Raises FileNotFoundError and other OSErrors where it cannot be read; InputError, which ends with ``mend``, where it
    is no regular file, has more than ``largest`` bytes, is not JSON, or a field is missing or of another type.
    """
    try:
        return msgspec.json.decode(read_regular(path, largest), type=kind)
    except UnfitFile as unfit:
        raise InputError(f"{path}: {unfit}; {mend}") from unfit
    except (msgspec.DecodeError, RecursionError) as error:  # a field of another type, no JSON, nesting without end
        raise InputError(f"{path}: {error}; {mend}") from error


def read_json_or_none(path: Path, kind: type[Made], *, largest: int = LARGEST_JSON) -> Made | None:
    """Read ``path`` as a ``kind``; None where it is missing, unreadable or something else."""
    try:
        return read_json(path, kind, largest=largest)
    except (OSError, InputError):
        return None


def as_json(value: Any) -> str:
    """Return a dataclass, or anything else that msgspec knows, as indented JSON with a line end.

    Raises InputError for a name that is not UTF-8, which JSON cannot hold.
    """
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
    except UnicodeEncodeError as error:
        raise InputError(f"{error.object!a}: a name that is not UTF-8 cannot be recorded; rename it") from error
