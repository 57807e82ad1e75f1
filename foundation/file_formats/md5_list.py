"""Lists of MD5 sums, ``<32 hex digits>  <path>`` per line, as GNU's md5sum and BSD's md5 write them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from foundation.errors import InputError
from foundation.regular_files import UnfitFile, read_regular

LINE = re.compile(r"(?P<escaped>\\?)(?P<md5>[0-9a-fA-F]{32})[ \t][ \t*]?(?P<name>.+)", re.DOTALL)
TAGGED_LINE = re.compile(r"(?P<escaped>\\?)MD5 \((?P<name>.+)\) = (?P<md5>[0-9a-fA-F]{32})", re.DOTALL)
"""Pattern of a line of ``md5sum --tag`` and of BSD's md5."""
LARGEST_LIST = 1 << 30
"""Most bytes of a list; a converted checkpoint's has 15 MB."""
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
UNESCAPES = {escape: character for character, escape in ESCAPES.items()}


def format_list(digests: Mapping[str, str]) -> str:
    """Return the text of a list; a path with a backslash or line end is escaped as md5sum does."""
    lines = []
    for name, digest in digests.items():
        escaped = re.sub(r"[\\\n\r]", lambda match: ESCAPES[match[0]], name)
        lines.append(f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n")
    return "".join(lines)


def read_list(path: Path) -> dict[str, str]:
    """Read a list and return the MD5 by path. The forms of md5sum, ``md5sum --tag`` and BSD's md5 are read.

    Blank lines and lines that begin with # are skipped; ``./`` and binary marks are accepted. Raises InputError for any
    other line, for a path that begins with ``..``, and if ``path`` is no regular file.
    """
    digests: dict[str, str] = {}
    for number, raw in enumerate(_text_of(path).split("\n"), 1):
        line = raw.removesuffix("\r").lstrip(" \t")
        if not line or line.startswith("#"):
            continue
        parsed = LINE.fullmatch(line) or TAGGED_LINE.fullmatch(line)
        if parsed is None:
            raise InputError(f"{path}:{number}: expected '<md5>  <path>' or 'MD5 (<path>) = <md5>', got {line[:80]!r}")
        name, digest = parsed["name"], parsed["md5"].lower()
        if parsed["escaped"]:
            name = re.sub(r"\\.", lambda match: UNESCAPES.get(match[0], match[0]), name)
        name = os.path.normpath(name).replace("//", "/")  # normpath keeps two slashes at the beginning
        if digests.get(name, digest) != digest:
            raise InputError(f"{path}:{number}: {name!r} is listed twice with different sums")
        if name.split("/")[0] == "..":
            raise InputError(f"{path}:{number}: {name!r} is not below the folder to verify")
        digests[name] = digest
    if not digests:
        raise InputError(f"{path}: lists no file")
    return digests


def begins_list(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of a list as :func:`format_list` writes it."""
    return re.match(rb"\\?[0-9a-f]{32}  .", head) is not None


def _text_of(path: Path) -> str:
    try:
        return os.fsdecode(read_regular(path, LARGEST_LIST))  # as the names of files are, whatever the locale
    except UnfitFile as unfit:
        raise InputError(f"{path}: expected a list of MD5 sums ({unfit})") from unfit
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; expected a list of MD5 sums") from error
