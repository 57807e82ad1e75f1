"""Keep index arrays beside their dataset, in ``PREFIX.index/``, from where every process reads the parts that it needs.

Arrays that depend on the same things are one folder of plain ``.npy`` files, with a manifest, made like every long
output (``foundation.outputs.resumable_output``). If another process is making them, a process waits, the
longer the larger they are; after that, or if they cannot be kept, each process builds its own in memory.
"""

import io
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data_prep.token_files.file_array import FileArray
from foundation.disk_answers import folder_is_there
from foundation.errors import InputError
from foundation.outputs.digest import md5_file, md5_text
from foundation.outputs.manifest import Recipe, read_manifest
from foundation.outputs.output_parts import NewPart
from foundation.outputs.publish import sibling
from foundation.outputs.resumable_output import resumable_output

MemoryArray = npt.NDArray[Any]
IndexArray = MemoryArray | FileArray
"""An array in memory, or in its file."""

STAGE = "index"
INDEX_VERSION = 1
"""Version of the arrays that follow from the same lengths and options (``Recipe.bytes_version``)."""
SLOWEST_BYTES_PER_S = 5e6
"""Bytes of an index that a process builds per second on a machine with ten times as many busy processes as cores; an
idle machine builds ten times as many."""


@dataclass(frozen=True)
class NewArray:
    """An array of an index, and the function that builds it."""

    dtype: npt.DTypeLike
    shape: tuple[int, ...]
    build: Callable[[], MemoryArray]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def write(self, path: Path) -> str:
        """Build the array, write it to ``path`` and return the MD5 of the file."""
        array = self.build()
        assert (array.dtype, array.shape) == (np.dtype(self.dtype), self.shape), f"{path}: {array.dtype} {array.shape}"
        with path.open("xb") as file:
            np.save(file, array)
        return md5_file(path)

    def opened(self, path: Path, mend: str) -> FileArray:
        """Open the file at ``path``. Raises OSError if it is missing, InputError if it is another array."""
        header = io.BytesIO()
        fields = {"descr": np.dtype(self.dtype).str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(header, fields)
        header_bytes, file = header.getvalue(), io.FileIO(path)
        size = len(header_bytes) + self.bytes
        if os.fstat(file.fileno()).st_size != size or os.pread(file.fileno(), len(header_bytes), 0) != header_bytes:
            raise InputError(f"{path}: not as it was written; {mend}")
        return FileArray(file, self.dtype, len(header_bytes), self.shape, mend=mend)


Keep = Callable[[str, Recipe, Mapping[str, NewArray]], Mapping[str, IndexArray]]
"""A function that returns arrays, which depend on a recipe alone, perhaps from files kept earlier under a name."""


def in_memory(name: str, recipe: Recipe, arrays: Mapping[str, NewArray]) -> Mapping[str, IndexArray]:
    """Build the arrays and keep none."""
    return {key: array.build() for key, array in arrays.items()}


def index_folder(prefix: Path) -> Path:
    return sibling(prefix, ".index")


class KeptIndex:
    """The arrays in ``folder``. ``problem``: a line that says why they cannot be kept there, once that is known."""

    def __init__(self, folder: Path, before_building: Callable[[], None] = lambda: None) -> None:
        """``before_building`` is called before arrays are built that are not kept; it may raise."""
        self.folder = folder
        self.problem: str | None = None
        self._before_building = before_building

    def arrays(self, name: str, recipe: Recipe, arrays: Mapping[str, NewArray]) -> Mapping[str, IndexArray]:
        """Return the arrays in the folder ``name``; missing ones are built and written first."""
        output = self.folder / name
        opened = self._attempt(lambda: _opened(output, recipe, arrays))
        if opened is None:
            self._before_building()
            if self.problem is None:
                opened = self._attempt(lambda: _built(output, recipe, arrays))
        return opened or in_memory(name, recipe, arrays)

    def _attempt(self, get: Callable[[], Mapping[str, FileArray] | None]) -> Mapping[str, FileArray] | None:
        """Return the result of ``get``; if files cannot be read or written, return None and note the reason."""
        try:
            return get()
        except (OSError, InputError) as error:
            reason = f"{self.folder}: {error.strerror or error}" if isinstance(error, OSError) else str(error)
            self.problem = f"{reason}; until then the index is built in memory, by each process for itself"
            return None


def _opened(output: Path, recipe: Recipe, arrays: Mapping[str, NewArray]) -> Mapping[str, FileArray] | None:
    """Open the arrays that are kept in ``output``; return None if there are none.

    Raises InputError if they are other arrays, OSError if a file is missing.
    """
    manifest, mend = read_manifest(output), f"remove {output.parent}, which is made again"
    if manifest is None:
        return None
    if differences := recipe.differences(manifest):
        raise InputError(f"{output}: {differences[0]}; {mend}")
    return {key: array.opened(output / f"{key}.npy", mend) for key, array in arrays.items()}


def _built(output: Path, recipe: Recipe, arrays: Mapping[str, NewArray]) -> Mapping[str, FileArray] | None:
    """Make the folder ``output`` of the arrays' files, and open them; return None if another process is making it.

    Raises OSError and InputError if that fails.
    """
    try:
        wait_s = sum(array.bytes for array in arrays.values()) / SLOWEST_BYTES_PER_S
        with resumable_output(output, recipe, wait_s=wait_s) as job:
            if job is not None:
                for key in job.missing(f"{key}.npy" for key in arrays):
                    path = job.new_path()
                    job.add([NewPart(key, path, arrays[key.removesuffix(".npy")].write(path))])
                sums = md5_text("".join(f"{job.done[f'{key}.npy'].md5}  {key}.npy\n" for key in sorted(arrays)))
                job.publish({output: (job.folder / "pieces", sums)}, recipe.inputs, {})
    except InputError:
        if not folder_is_there(output):  # else another process has published, and taken the ground from under this one
            raise
    return _opened(output, recipe, arrays)
