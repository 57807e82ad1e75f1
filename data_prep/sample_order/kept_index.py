"""Index arrays kept beside their dataset, in ``PREFIX.index/``, from where every process reads what it asks for.

Each is a plain ``.npy`` file whose name tells all that it depends on. A file appears whole or not at all, whoever
writes it and however many do so at once; the lock only spares the others the work.
"""

import fcntl
import io
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from data_prep.token_files.file_array import FileArray
from stage.publish import PARTIAL, beside

Array = npt.NDArray[Any]
IndexArray = Array | FileArray
"""In memory, or in the file where it is kept."""

HOST = socket.gethostname()
ABANDONED_AFTER_S = 3600.0


class Keep(Protocol):
    def __call__(
        self, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...], build: Callable[[], Array]
    ) -> IndexArray:
        """The array that ``build`` makes, perhaps from where it was kept under ``name`` before."""
        ...


def in_memory(name: str, dtype: npt.DTypeLike, shape: tuple[int, ...], build: Callable[[], Array]) -> Array:
    """Keep nothing: build the array."""
    return build()


def index_folder(prefix: Path) -> Path:
    return beside(prefix, ".index")


class IndexCache:
    """The arrays in ``folder``. ``problem``: why they cannot be kept there, in one line, once that has turned out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem: str | None = None

    def array(self, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...], build: Callable[[], Array]) -> IndexArray:
        """The array in the file ``name``.npy, which is built and written first where it is missing or damaged."""
        file = _ArrayFile(self.folder / f"{name}.npy", np.dtype(dtype), shape)
        found, built = file.opened(), None
        if found is None and self.problem is None:
            try:
                self.folder.mkdir(exist_ok=True)
                with _turn(self.folder / "lock") as alone:
                    found = file.opened()  # another process may have written it while this one waited
                    if found is None:
                        _remove_leftovers(self.folder, alone)
                        built = build()
                        file.write(built)
                        found = file.opened()
            except OSError as error:
                reason = error.strerror or error
                self.problem = f"{self.folder}: {reason}; the index is built in memory, by each process for itself"
        if found is not None:
            return found
        return build() if built is None else built


@dataclass(frozen=True)
class _ArrayFile:
    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def header(self) -> bytes:
        """The first bytes of the ``.npy`` file; whatever begins differently or has another length is not ours."""
        header = io.BytesIO()
        fields = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(header, fields)
        return header.getvalue()

    def opened(self) -> FileArray | None:
        """None where there is no such file, or it is not ours."""
        header = self.header()
        size = len(header) + math.prod(self.shape) * self.dtype.itemsize
        try:
            file = io.FileIO(self.path)
            if os.fstat(file.fileno()).st_size != size or os.pread(file.fileno(), len(header), 0) != header:
                return None
        except OSError:
            return None
        mend = f"remove {self.path.parent}, which is made again"
        return FileArray(file, self.dtype, len(header), self.shape, mend=mend)

    def write(self, array: Array) -> None:
        assert (array.dtype, array.shape) == (self.dtype, self.shape), f"{self.path}: {array.dtype} {array.shape}"
        unique = f".{HOST}.{os.getpid()}.{secrets.token_hex(4)}{PARTIAL}"
        partial = self.path.with_name(self.path.name + unique)
        try:
            with partial.open("xb") as file:
                file.write(self.header())
                file.write(array.reshape(-1).view(np.uint8).data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self.path)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def _turn(path: Path) -> Iterator[bool]:
    """Wait until no other process holds the lock. False where the file system has none; work is then done twice."""
    with path.open("a") as file:
        locked = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            locked = False
        yield locked


def _remove_leftovers(folder: Path, alone: bool) -> None:
    """Remove what killed processes have left half-written.

    Holding the lock we know that no process of this machine is writing. It may not reach other machines (Lustre's
    localflock): what they left is removed when it is old. A writer whose file is removed all the same still has the
    array in memory.
    """
    for partial in folder.glob(f"*{PARTIAL}"):
        with suppress(FileNotFoundError):
            ours = alone and f".{HOST}." in partial.name
            if ours or time.time() - partial.stat().st_mtime > ABANDONED_AFTER_S:
                partial.unlink()
