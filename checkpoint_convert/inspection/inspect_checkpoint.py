"""Inspect a checkpoint: shape, dtype and chunks of every array, and figures of its values."""

import hashlib
import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.checkpoint_files import open_checkpoint
from checkpoint_convert.formats.stored_array import MEND, StoredArray, Values, shape_text
from checkpoint_convert.inspection.array_blocks import blocks, results_in_order, segments
from foundation.errors import CheckFailed, InputError
from foundation.outputs.manifest import require_intact
from foundation.plain_text import table_text
from foundation.progress import Meter, progress
from foundation.sizes import require_workers

COUNTS = {"zeros": "zeros", "NaN": "nan", "Inf": "inf"}
"""Columns with numbers of values, and the fields that hold them."""


@dataclass(frozen=True)
class Statistics:
    """Figures of some values; ``minimum`` to ``squares`` are those of the finite ones."""

    zeros: int = 0
    nan: int = 0
    inf: int = 0
    finite: int = 0
    minimum: float = math.inf
    maximum: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared distances from the mean."""

    def __add__(self, following: "Statistics") -> "Statistics":
        """Return the figures of both together.

        Means are shifted rather than sums added up, so that no digits are lost (Chan et al. 1979).
        """
        finite = self.finite + following.finite
        apart = following.mean - self.mean
        share = following.finite / max(finite, 1)
        return Statistics(
            zeros=self.zeros + following.zeros,
            nan=self.nan + following.nan,
            inf=self.inf + following.inf,
            finite=finite,
            minimum=min(self.minimum, following.minimum),
            maximum=max(self.maximum, following.maximum),
            mean=self.mean + apart * share,
            squares=self.squares + following.squares + apart * apart * self.finite * share,
        )

    @property
    def sd(self) -> float:
        """Standard deviation of the values as a whole, not of a sample."""
        return math.sqrt(self.squares / max(self.finite, 1))


def statistics(values: Values) -> Statistics:
    """Return the figures of an array's values, computed in float64, a segment at a time."""
    total = Statistics()
    for segment in segments(values):
        numbers = segment.astype(np.float64)
        nan, inf = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
        finite = numbers[np.isfinite(numbers)] if nan + inf else numbers
        total += Statistics(zeros=len(numbers) - int(np.count_nonzero(numbers)), nan=nan, inf=inf)
        if len(finite):
            mean, low, high = float(finite.mean()), float(finite.min()), float(finite.max())
            squares = float(np.square(finite - mean).sum())
            total += Statistics(finite=len(finite), minimum=low, maximum=high, mean=mean, squares=squares)
    return total


@dataclass(frozen=True)
class ArrayReport:
    """The figures of one array.

    Minimum to standard deviation are those of the finite values; they are None if there are none or chunks are missing.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    missing_chunks: int
    min: float | None
    max: float | None
    mean: float | None
    sd: float | None
    zeros: int
    nan: int
    inf: int
    md5: str | None
    """MD5 of the values in C order, little-endian; None if it was not requested."""


@dataclass(frozen=True)
class CheckpointReport:
    path: str
    format: str
    arrays: list[ArrayReport]
    elements: int
    bytes: int
    """Bytes of the values, uncompressed."""
    zeros: int
    nan: int
    inf: int
    unread: list[str]
    """Reasons why arrays beside the model's cannot be read."""


def inspect_checkpoint(path: Path, pattern: str = "*", *, md5: bool = False, workers: int = 1) -> CheckpointReport:
    """Read every array whose name contains ``pattern``, a shell pattern; arrays that lack chunks are not read.

    Raises InputError if ``path`` is no checkpoint, no name contains the pattern, or values cannot be read.
    """
    require_workers(workers)
    checkpoint = open_checkpoint(path)
    arrays = {name: array for name, array in checkpoint.arrays.items() if fnmatchcase(name, f"*{pattern}*")}
    unread = [reason for name, reason in checkpoint.unread.items() if fnmatchcase(name, f"*{pattern}*")]
    if not arrays and not unread:
        raise InputError(f"{checkpoint.path}: none of its {len(checkpoint.arrays)} arrays has {pattern!r} in its name")
    size = sum(array.bytes for array in arrays.values())
    with progress("inspect", size, "bytes", files=sum(array.chunk_count for array in arrays.values())) as meter:
        reports = [_array_report(name, array, md5, workers, meter) for name, array in arrays.items()]
    return CheckpointReport(
        str(path),
        checkpoint.format,
        reports,
        elements=sum(math.prod(array.shape) for array in arrays.values()),
        bytes=size,
        zeros=sum(report.zeros for report in reports),
        nan=sum(report.nan for report in reports),
        inf=sum(report.inf for report in reports),
        unread=unread,
    )


def _array_report(name: str, array: StoredArray, md5: bool, workers: int, meter: Meter) -> ArrayReport:
    total = Statistics()
    missing_chunks = array.missing_chunks
    digest = hashlib.md5(usedforsecurity=False) if md5 and not missing_chunks else None

    def read(box: Box) -> tuple[Statistics, Values]:
        with meter.doing("reading"):
            values = array.read(box)
        with meter.doing("computing"):
            return statistics(values), values

    boxes = iter(()) if missing_chunks else blocks(array, in_order=md5)
    for part, values in results_in_order(read, boxes, workers, array):
        total += part
        if digest is not None:
            digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        meter(values.nbytes)
    meter(0, files=array.chunk_count)
    has_values = total.finite > 0
    return ArrayReport(
        name=name,
        shape=array.shape,
        dtype=array.dtype.name,
        chunks=array.chunks,
        missing_chunks=missing_chunks,
        min=total.minimum if has_values else None,
        max=total.maximum if has_values else None,
        mean=total.mean if has_values else None,
        sd=total.sd if has_values else None,
        zeros=total.zeros,
        nan=total.nan,
        inf=total.inf,
        md5=digest.hexdigest() if digest is not None else None,
    )


def format_checkpoint_report(report: CheckpointReport) -> str:
    """Return a table for people, the figures of an array below its name; counts that are 0 everywhere are left out."""
    counts = {title: name for title, name in COUNTS.items() if getattr(report, name)}
    head = ("", "shape", "dtype", "chunks", "min", "max", "mean", "sd", *counts)
    rows = []
    for array in report.arrays:
        figures = ["-" if value is None else f"{value:.3g}" for value in (array.min, array.max, array.mean, array.sd)]
        form = ["", shape_text(array.shape), array.dtype, shape_text(array.chunks)]
        rows.append([*form, *figures, *(f"{getattr(array, name):,}" for name in counts.values())])
    names = {number: array.name for number, array in enumerate(report.arrays)}
    lines = [
        f"{report.path}: {report.format}, {len(report.arrays)} arrays",
        table_text(head, rows, captions=names),
        *(f"  md5 {array.md5}  {array.name}" for array in report.arrays if array.md5 is not None),
        *(
            f"  {array.name}: {array.missing_chunks} chunks have no file; its values were not read"
            for array in report.arrays
            if array.missing_chunks
        ),
        *(f"  not read: {reason}" for reason in report.unread),
        f"total: {report.elements:,} values, {report.bytes:,} bytes, "
        f"{report.zeros:,} zeros, {report.nan:,} NaN, {report.inf:,} infinite",
    ]
    return "\n".join(lines)


def require_all_chunks(report: CheckpointReport) -> None:
    """Raise CheckFailed if chunks are missing, naming the first array that lacks some.

    It is also raised if number or size of the files differ from the checkpoint's manifest.
    """
    lacking = [array for array in report.arrays if array.missing_chunks]
    if lacking:
        raise CheckFailed(
            f"{report.path}: {sum(array.missing_chunks for array in lacking):,} chunks have no file, first of "
            f"{lacking[0].name}; {MEND}"
        )
    try:
        require_intact(Path(report.path))
    except InputError as error:
        raise CheckFailed(str(error)) from error
