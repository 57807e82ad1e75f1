"""Plain values out of a ``torch.save`` archive that may hold anybody's classes: nothing that it names is imported.

Whatever class or function the pickle names, an inert stand-in takes its place, which keeps its arguments and its state;
tensors become None. So a ``common.pt`` of Megatron, which holds its command line as a Namespace full of enumerations,
tells its iteration without a line of Megatron's code, or of a stranger's.
"""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

from checkpoint_convert.formats.torch_files.dcp_metadata import check_sizes
from stage.errors import InputError, first_line

LARGEST_PICKLE = 1 << 26
"""Bytes; Megatron's common.pt has some thousand."""


class Inert:
    """Stands for an object of any class."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        self.arguments = arguments
        self.state: Any = fields
        self.items: list[Any] = []

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Of what was a kind of list."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        self.items.extend(items)

    def add(self, item: Any) -> None:
        """Of what was a kind of set."""
        self.items.append(item)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Of what was a kind of dictionary."""
        self.items.append((key, value))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return Inert

    def persistent_load(self, identifier: Any) -> Any:
        return None


def read_plain_values(content: bytes, where: Path) -> Any:
    """What the archive ``content`` holds. Raises InputError, naming ``where``, when it is none or damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            (entry,) = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
            if entry.compress_type or entry.file_size > LARGEST_PICKLE:
                raise ValueError(f"a pickle of {entry.file_size:,} bytes")
            data = archive.read(entry)
        check_sizes(data)
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle can raise anything
        reason = first_line(error)
        raise InputError(f"{where}: not what torch.save writes ({reason})") from error
