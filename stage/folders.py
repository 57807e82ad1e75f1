"""Going through a folder and all below it."""

import os
from collections.abc import Iterator
from pathlib import Path


def walked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Each folder, and the names of what lies in it and is no folder. What is gone meanwhile is left out.

    Raises OSError, naming the folder, for one that cannot be read: ``os.walk`` would take it as empty.
    """
    for inner, _, names in os.walk(folder, onerror=_raise_unless_gone):
        yield inner, names


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
