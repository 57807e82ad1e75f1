"""What is in a checkpoint: shape, dtype and chunks of every array, and figures of its values."""

import hashlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.byte_ranges import Values
from checkpoint_convert.formats.checkpoint_files import Checkpoint, open_checkpoint
from checkpoint_convert.formats.stored_array import StoredArray, blocks
from stage.errors import InputError
from stage.progress import progress

Result = TypeVar("Result")

MEMORY_BYTES = 1 << 30
BLOCK_BYTES = 64 << 20
COPIES = 3
"""Of a block: decoded chunks, the block itself, and what is computed of it."""
PIECE = 1 << 20
"""Values that are float64 at the same time."""


@dataclass(frozen=True)
class Statistics:
    """Figures of some values; ``minimum`` to ``squares`` are of the finite ones."""

    count: int = 0
    zeros: int = 0
    nan: int = 0
    inf: int = 0
    finite: int = 0
    minimum: float = math.inf
    maximum: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean."""

    def __add__(self, other: "Statistics") -> "Statistics":
        """Of both together: means are moved, not sums added up, so that no digits are lost (Chan et al. 1979)."""
        finite = self.finite + other.finite
        apart = other.mean - self.mean
        share = other.finite / max(finite, 1)
        return Statistics(
            self.count + other.count,
            self.zeros + other.zeros,
            self.nan + other.nan,
            self.inf + other.inf,
            finite,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            self.mean + apart * share,
            self.squares + other.squares + apart * apart * self.finite * share,
        )

    @property
    def sd(self) -> float:
        """Of the values as a whole, not of a sample."""
        return math.sqrt(self.squares / max(self.finite, 1))


@dataclass(frozen=True)
class ArrayReport:
    """Minimum to standard deviation are of the finite values, None where there is none."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    bytes_on_disk: int
    missing_chunks: int
    min: float | None
    max: float | None
    mean: float | None
    sd: float | None
    zeros: int
    nan: int
    inf: int
    md5: str | None
    """Of the values in C order, little-endian; None where it was not asked for."""


@dataclass(frozen=True)
class CheckpointReport:
    path: str
    format: str
    arrays: list[ArrayReport]
    elements: int
    bytes: int
    """Uncompressed."""
    bytes_on_disk: int
    zeros: int
    nan: int
    inf: int


def inspect_checkpoint(path: Path, pattern: str = "*", *, md5: bool = False) -> CheckpointReport:
    """Read every array whose name holds ``pattern``, a shell pattern.

    Takes about 1 GiB of memory, more only where a compressed chunk is larger than 256 MB. Raises InputError where
    ``path`` is no checkpoint, no name holds the pattern, or values cannot be read.
    """
    arrays = chosen(open_checkpoint(path), pattern)
    with progress("inspect", sum(array.bytes for array in arrays.arrays.values()), "bytes") as advance:
        reports = [_array_report(name, array, md5, advance) for name, array in arrays.arrays.items()]
    return CheckpointReport(
        str(path),
        arrays.format,
        reports,
        elements=sum(math.prod(array.shape) for array in arrays.arrays.values()),
        bytes=sum(array.bytes for array in arrays.arrays.values()),
        bytes_on_disk=sum(report.bytes_on_disk for report in reports),
        zeros=sum(report.zeros for report in reports),
        nan=sum(report.nan for report in reports),
        inf=sum(report.inf for report in reports),
    )


def chosen(checkpoint: Checkpoint, pattern: str) -> Checkpoint:
    """The arrays whose name holds ``pattern``. Raises InputError where there is none."""
    arrays = {name: array for name, array in checkpoint.arrays.items() if fnmatchcase(name, f"*{pattern}*")}
    if not arrays:
        raise InputError(f"{checkpoint.path}: none of its {len(checkpoint.arrays)} arrays has {pattern!r} in its name")
    return Checkpoint(checkpoint.path, checkpoint.format, arrays)


def _array_report(name: str, array: StoredArray, md5: bool, advance: Callable[[float], None]) -> ArrayReport:
    total = Statistics()
    digest = hashlib.md5(usedforsecurity=False) if md5 else None

    def read(box: Box) -> tuple[Statistics, Values]:
        values = array.read(box)
        return statistics(values), values

    for part, values in in_order(read, blocks(array, BLOCK_BYTES, in_order=md5), block_bytes(array)):
        total += part
        if digest is not None:
            digest.update(np.ascontiguousarray(values).view(np.uint8).data if values.ndim else values.tobytes())
        advance(values.nbytes)
    known = total.finite > 0
    bytes_on_disk, missing_chunks = array.on_disk()
    return ArrayReport(
        name=name,
        shape=array.shape,
        dtype=array.dtype.name,
        chunks=array.chunks,
        bytes_on_disk=bytes_on_disk,
        missing_chunks=missing_chunks,
        min=total.minimum if known else None,
        max=total.maximum if known else None,
        mean=total.mean if known else None,
        sd=total.sd if known else None,
        zeros=total.zeros,
        nan=total.nan,
        inf=total.inf,
        md5=digest.hexdigest() if digest is not None else None,
    )


def statistics(values: Values) -> Statistics:
    """In float64, a piece at a time."""
    total = Statistics()
    for piece in pieces(values):
        numbers = piece.astype(np.float64)
        nan, inf = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
        finite = numbers[np.isfinite(numbers)] if nan + inf else numbers
        zeros = len(numbers) - int(np.count_nonzero(numbers))
        part = Statistics(len(numbers), zeros, nan, inf, len(finite))
        if len(finite):
            mean = float(finite.mean())
            squares = float(np.square(finite - mean).sum())
            low, high = float(finite.min()), float(finite.max())
            part = Statistics(len(numbers), zeros, nan, inf, len(finite), low, high, mean, squares)
        total += part
    return total


def pieces(values: Values) -> Iterator[Values]:
    flat = values.reshape(-1)
    for start in range(0, len(flat), PIECE):
        yield flat[start : start + PIECE]


def block_bytes(array: StoredArray) -> int:
    """The largest block that ``blocks`` makes of an array."""
    return max(BLOCK_BYTES, 0 if array.in_part else math.prod(array.chunks) * array.dtype.itemsize)


def in_order(work: Callable[[Box], Result], boxes: Iterable[Box], largest_bytes: int) -> Iterator[Result]:
    """``work`` of every box, in the boxes' order, by as many threads as there are cores and memory for."""
    threads = max(1, min(len(os.sched_getaffinity(0)), MEMORY_BYTES // (COPIES * largest_bytes) - 1))
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[Result]] = deque()
        try:
            for box in boxes:
                running.append(pool.submit(work, box))
                if len(running) > threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def format_checkpoint_report(report: CheckpointReport) -> str:
    """A table for a person, one array per line; names that begin alike stand under what they begin with."""
    head = ("shape", "dtype", "chunks", "on disk", "min", "max", "mean", "sd", "zeros", "NaN", "Inf")
    rows = [_cells(array) for array in report.arrays]
    lines = [f"{report.path}: {report.format}, {len(report.arrays)} arrays"]
    lines += table([array.name for array in report.arrays], head, rows)
    lines += [f"  md5 {array.md5}  {array.name}" for array in report.arrays if array.md5 is not None]
    lines += [
        f"  {array.name}: {array.missing_chunks} chunks have no file, their values are taken as zeros"
        for array in report.arrays
        if array.missing_chunks
    ]
    lines.append(
        f"total: {report.elements:,} values, {report.bytes:,} bytes ({report.bytes_on_disk:,} on disk), "
        f"{report.zeros:,} zeros, {report.nan:,} NaN, {report.inf:,} infinite"
    )
    return "\n".join(lines)


def _cells(array: ArrayReport) -> list[str]:
    figures = ["-" if figure is None else f"{figure:.4g}" for figure in (array.min, array.max, array.mean, array.sd)]
    counts = [str(count) for count in (array.zeros, array.nan, array.inf)]
    return [sizes(array.shape), array.dtype, sizes(array.chunks), human(array.bytes_on_disk), *figures, *counts]


def table(names: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a table; the beginning of a name up to the model's own part is a heading."""
    cut = [_split(name) for name in names]
    cells = [["", *head], *([rest, *row] for (_, rest), row in zip(cut, rows, strict=True))]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    lines, last = [], None
    for (heading, _), row in zip([("", ""), *cut], cells, strict=True):
        if heading != last and heading:
            lines.append(heading)
        last = heading
        padded = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(f"  {row[0]:<{widths[0]}}  {'  '.join(padded)}")
    return lines


def _split(name: str) -> tuple[str, str]:
    for mark in ("language_model.", "params.lm.", "/"):
        heading, found, rest = name.partition(mark)
        if found:
            return heading + found, rest
    return "", name


def sizes(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def human(count: float) -> str:
    """Bytes in units of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
