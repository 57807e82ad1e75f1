"""Copy files of a run into a package: regular files inside the run's folder alone, and of its configuration the part
that describes the training.

A package is public. A link could lead to a private file, and a configuration can hold commands, addresses and tokens.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from foundation.errors import InputError
from foundation.regular_files import kind_of

LEFT_OUT = "(left out)"
"""Published instead of a text that may hold an address."""
PUBLISHED_SECTIONS = (
    "benchmark", "system", "result_number", "precision", "deterministic", "data", "checkpoints", "guards", "logging",
)  # fmt: skip
"""Parts of config.json that describe the training. Numbers and switches in them are published."""
PUBLISHED_TEXTS = frozenset(
    (
        "precision", "name", "mlperf_name", "optimizer", "weight_decay", "progress", "training", "validation",
        "lr_schedule", "validation_order",
        "device", "recompute", "accelerator", "platform", "copy_engines", "train_data_path", "valid_data_path",
        "checkpoint", "submission_org", "submission_division", "submission_status",
    )
)  # fmt: skip
"""Fields of config.json whose texts are published: none of them is a command or an address."""
ADDRESS = "://"


@contextmanager
def opened_inside(folder: Path, *names: str) -> Iterator[BinaryIO | None]:
    """Open the regular file ``folder/names``, and follow no link below ``folder``; None if there is no such file.

    Raises InputError for a link, a folder, a device or a pipe of that name.
    """
    try:
        handle = _handle_inside(folder, names)
    except FileNotFoundError:
        yield None
        return
    with os.fdopen(handle, "rb") as file:
        yield file


def _handle_inside(folder: Path, names: Sequence[str]) -> int:
    """Open folder by folder, because a link may stand at each of them. Raises FileNotFoundError and InputError."""
    path = folder.joinpath(*names)
    if any(name in ("", os.curdir, os.pardir) or os.sep in name for name in names):
        raise InputError(f"{path}: not a name in {folder}")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for depth, name in enumerate(names, 1):
        is_expected = stat.S_ISREG if depth == len(names) else stat.S_ISDIR
        parent = handle
        try:
            mode = os.lstat(name, dir_fd=parent).st_mode
            if is_expected(mode):  # a link that replaces it now makes open fail
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
                mode = os.fstat(handle).st_mode
        finally:
            os.close(parent)
        if not is_expected(mode):
            mend = "a package holds files of the run's folder alone; put the file itself there, or delete it"
            raise InputError(f"{path}: {name} is a {kind_of(mode)}; {mend}")
    return handle


def copy_inside(folder: Path, *names: str, target: Path) -> bool:
    """Copy the file ``folder/names`` as :func:`opened_inside` opens it, and return whether it exists."""
    with opened_inside(folder, *names) as source:
        if source is None:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as copy:
            shutil.copyfileobj(source, copy)
    return True


def json_inside(folder: Path, *names: str, largest_bytes: int) -> Any:
    """Return the content of the JSON file ``folder/names``; None if it does not exist."""
    with opened_inside(folder, *names) as source:
        content = None if source is None else source.read(largest_bytes + 1)
    path = folder.joinpath(*names)
    if content is None:
        return None
    if len(content) > largest_bytes:
        raise InputError(f"{path}: more than {largest_bytes:,} bytes; expected the file that the run wrote")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); expected the file that the run wrote") from error


def published_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the published part of a run's configuration: numbers, switches, and the texts of listed fields."""
    return {name: _without_texts(config[name], name) for name in PUBLISHED_SECTIONS if name in config}


def without_addresses(value: Any) -> Any:
    """Return a JSON value in which :data:`LEFT_OUT` stands for each text with an address."""
    if isinstance(value, dict):
        return {without_addresses(name): without_addresses(content) for name, content in value.items()}
    if isinstance(value, list):
        return [without_addresses(content) for content in value]
    return LEFT_OUT if isinstance(value, str) and ADDRESS in value else value


def _without_texts(value: Any, field: str) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_texts(content, name)
            for name, content in value.items()
            if not isinstance(content, str) or name in PUBLISHED_TEXTS
        }
    if isinstance(value, list):
        return [
            _without_texts(content, field)
            for content in value
            if not isinstance(content, str) or field in PUBLISHED_TEXTS
        ]
    return without_addresses(value)
