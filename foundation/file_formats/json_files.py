"""Read JSON files into dataclasses: every field must have its type, and the number of bytes is bounded."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from foundation.errors import InputError
from foundation.regular_files import UnfitFile, read_regular

Content = TypeVar("Content")
LARGEST_JSON = 1 << 26
"""Most bytes of a file; a manifest of 1,024 shards has 300 kB, a checkpoint's index some MB."""
DAMAGED = (InputError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, ArithmeticError)
"""Exceptions raised by a damaged file, or by fields of an unexpected type."""
UNREADABLE = (OSError, *DAMAGED)
"""Exceptions of damaged and of missing files, for callers that pass over both."""


def read_bounded(path: Path, largest: int) -> bytes:
    """Read all of a small file, without waiting as reading a pipe would.

    Raises OSError if it cannot be opened or read, InputError if it is no regular file or has more than ``largest``
    bytes.
    """
    try:
        return read_regular(path, largest)
    except UnfitFile as unfit:
        raise InputError(f"{path}: {unfit}") from unfit


def read_json(path: Path, kind: type[Content], *, mend: str = "make it again", largest: int = LARGEST_JSON) -> Content:
    """Read ``path`` as a ``kind``: a dataclass, or any other type that msgspec knows.

    Raises FileNotFoundError and other OSErrors if it cannot be read. Raises InputError, which ends with ``mend``, if it
    is no regular file, has more than ``largest`` bytes, is not JSON, or a field is missing or of another type.
    """
    try:
        return msgspec.json.decode(read_bounded(path, largest), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # of another type, no JSON, too deep
        raise InputError(f"{path}: {error}; {mend}") from error


def as_json(value: Any) -> str:
    """Return a dataclass, or any other value that msgspec knows, as indented JSON with a line end.

    Raises InputError for a name that is not UTF-8, which JSON cannot hold.
    """
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
    except UnicodeEncodeError as error:
        raise InputError(f"{error.object!a}: a name that is not UTF-8 cannot be recorded; rename it") from error
