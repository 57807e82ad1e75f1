"""Sizes as a person writes them, of ``--memory-limit``."""

import re

from stage.errors import InputError

UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_memory_limit(text: str) -> int:
    """'8GiB' -> 8589934592. Raises InputError for anything else."""
    match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in UNITS:
        raise InputError(f"--memory-limit {text!r}: expected a size such as 8GiB or 500MB")
    return int(float(match[1]) * UNITS[match[2].upper()])
