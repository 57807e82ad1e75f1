"""Small files of anybody's, read so that none of them can stop, fill or crash a program."""

import json
from pathlib import Path
from typing import Any

from stage.errors import InputError
from stage.limits.regular_files import UnfitFile, read_regular

LARGEST_JSON = 1 << 26
"""Bytes; a manifest of 1,024 shards has 300 kB, a checkpoint's index some MB."""
DAMAGED = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, ArithmeticError)
"""What can be raised where its fields are taken for what they should be: a list in the place of a number, Infinity that
becomes an int, nesting without end."""

UNREADABLE = (OSError, InputError, *DAMAGED)
"""What can be raised by all of it, for those who pass over a file that is not what they once wrote."""


def read_small_json(path: Path, largest: int = LARGEST_JSON) -> Any:
    """What a file says. Raises as :func:`read_bounded` does, and one of DAMAGED where it is no JSON."""
    return json.loads(read_bounded(path, largest))


def read_bounded(path: Path, largest: int) -> bytes:
    """All of a file. Never waits, as reading a pipe would.

    Raises OSError where it cannot be opened or read, InputError for what is no regular file or has more than
    ``largest`` bytes.
    """
    try:
        return read_regular(path, largest)
    except UnfitFile as unfit:
        raise InputError(f"{path}: {unfit}") from unfit
