"""Compare two checkpoints, array by array and value by value."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.checkpoint_files import MEGATRON, PAXML, open_checkpoint
from checkpoint_convert.formats.step_files import is_counter
from checkpoint_convert.formats.stored_array import StoredArray, Values, shape_text
from checkpoint_convert.inspection.array_blocks import PIECE, blocks, pieces, results_in_order
from checkpoint_convert.inspection.megatron_view import as_megatron
from foundation.errors import CheckFailed, InputError
from foundation.plain_text import table_text
from foundation.progress import Meter, progress
from foundation.sizes import require_workers

NAMED = 5


@dataclass(frozen=True)
class Largest:
    """The largest difference so far, and the number of differences."""

    differing: int = 0
    difference: float = 0.0
    """Largest difference; ``inf`` if one side is NaN or infinite and the other is not."""
    place: tuple[int, ...] | None = None
    here: float = 0.0
    there: float = 0.0

    def __add__(self, other: "Largest") -> "Largest":
        keep = other.place is None or (self.place is not None and self.difference >= other.difference)
        return replace(self if keep else other, differing=self.differing + other.differing)


@dataclass(frozen=True)
class ArrayComparison:
    """The comparison of one array that both have. It has no figures if shapes or dtypes differ."""

    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    differing: int | None = None
    """Number of values that differ: in any bit, or by more than the tolerance."""
    largest_difference: float | None = None
    """Largest difference; None if it is not finite."""
    place: tuple[int, ...] | None = None
    """Index of the largest difference; None if nothing differs."""
    values: tuple[str, str] | None = None
    """Values at that index."""

    @property
    def same(self) -> bool:
        return self.differing == 0

    @property
    def rank(self) -> tuple[Any, ...]:
        """Key to sort arrays by their kind of difference: shape or dtype, values that are not finite, other values,
        none."""
        if self.differing is None or self.same:
            return (0 if self.differing is None else 3, 0.0, self.name)
        return (1, 0.0, self.name) if self.largest_difference is None else (2, -self.largest_difference, self.name)


@dataclass(frozen=True)
class CheckpointComparison:
    paths: tuple[str, str]
    formats: tuple[str, str]
    tolerance: float
    only_in: tuple[list[str], list[str]]
    """Names of arrays that only the first has, and that only the second has, without PAXML's counters
    (``step_files.py``)."""
    adam_steps: tuple[int | None, int | None]
    """Adam's step in each; None if its files do not give it."""
    unread: list[str]
    """Reasons why arrays beside the model's cannot be read, in either; they are not compared."""
    arrays: list[ArrayComparison]
    """Comparisons of the arrays, the largest differences first."""


def compare_checkpoints(one: Path, other: Path, tolerance: float = 0.0, *, workers: int = 1) -> CheckpointComparison:
    """Compare two checkpoints of one kind, or a PAXML one with a Megatron one by the table in ``array_table.py``.

    ``tolerance`` bounds the absolute difference; 0 asks for the same bits. If a PAXML checkpoint is compared with a
    Megatron one, names, places and shapes are Megatron's. Raises InputError if no array has the same name.
    """
    if not 0 <= tolerance < math.inf:
        raise InputError(f"--tolerance {tolerance}: expected a number of 0 or more")
    require_workers(workers)
    first, second = here, there = open_checkpoint(one), open_checkpoint(other)
    if (here.format, there.format) == (PAXML, MEGATRON):
        here = as_megatron(here, there)
    elif (here.format, there.format) == (MEGATRON, PAXML):
        there = as_megatron(there, here)
    pairs = {name: (array, there.arrays[name]) for name, array in here.arrays.items() if name in there.arrays}
    if not pairs:
        raise InputError(f"{one} ({here.format}) and {other} ({there.format}) have no array of the same name")
    size = sum(array.bytes for pair in pairs.values() for array in pair)
    files = sum(array.pieces for pair in pairs.values() for array in pair)
    with progress("compare", size, "bytes", files=files) as meter:
        arrays = [_compare(name, *pair, tolerance, workers, meter) for name, pair in pairs.items()]
    only_here, only_there = (
        [name for name in checkpoint.arrays if name not in pairs and not is_counter(name)]
        for checkpoint in (here, there)
    )
    return CheckpointComparison(
        (str(one), str(other)),
        (here.format, there.format),
        tolerance,
        only_in=(only_here, only_there),
        adam_steps=(first.steps()[1], second.steps()[1]),
        unread=[*here.unread.values(), *there.unread.values()],
        arrays=sorted(arrays, key=lambda array: array.rank),
    )


def _compare(
    name: str, here: StoredArray, there: StoredArray, tolerance: float, workers: int, meter: Meter
) -> ArrayComparison:
    result = ArrayComparison(name, (here.shape, there.shape), (here.dtype.name, there.dtype.name))
    if here.shape != there.shape or here.dtype != there.dtype:
        meter(here.bytes + there.bytes, files=here.pieces + there.pieces)
        return result
    cut = there if here.in_part else here  # the side of which only whole chunks can be read

    def work(box: Box) -> tuple[Largest, int]:
        with meter.doing("reading"):
            one, other = here.read(box), there.read(box)
        with meter.doing("computing"):
            return difference(one, other, tolerance, tuple(part.start for part in box)), one.nbytes + other.nbytes

    total = Largest()
    for found, read in results_in_order(work, blocks(cut), workers, here, there):
        total += found
        meter(read)
    meter(0, files=here.pieces + there.pieces)
    largest = total.difference if math.isfinite(total.difference) else None
    return replace(
        result,
        differing=total.differing,
        largest_difference=largest,
        place=total.place,
        values=None if total.place is None else (repr(total.here), repr(total.there)),
    )


def difference(here: Values, there: Values, tolerance: float, offset: tuple[int, ...]) -> Largest:
    """Return the differences of two blocks whose first value has the index ``offset`` in the array."""
    total = Largest()
    bits = np.dtype(f"u{here.dtype.itemsize}")
    for number, (mine, theirs) in enumerate(zip(pieces(here), pieces(there), strict=True)):
        changed = mine.view(bits) != theirs.view(bits)
        if not changed.any():
            continue
        one, other = mine.astype(np.float64), theirs.astype(np.float64)
        with np.errstate(invalid="ignore"):  # of infinities
            apart = np.abs(one - other)
        apart[np.isnan(apart)] = math.inf
        apart[~changed | (np.isnan(one) & np.isnan(other))] = 0.0
        differing = changed if tolerance == 0 else apart > tolerance
        at = int(np.argmax(np.where(changed, apart, -1.0)))
        inside = np.unravel_index(number * PIECE + at, here.shape)
        place = tuple(int(axis) + first for axis, first in zip(inside, offset, strict=True))
        total += Largest(int(differing.sum()), float(apart[at]), place, float(one[at]), float(other[at]))
    return total


def require_same_checkpoints(comparison: CheckpointComparison) -> None:
    """Raise CheckFailed if the checkpoints differ, naming the array that differs most and the index."""
    one, other = comparison.paths
    for path, names in zip(comparison.paths, comparison.only_in, strict=True):
        if names:
            raise CheckFailed(f"{one} and {other} differ: {len(names)} arrays are only in {path}, first {names[0]}")
    here, there = comparison.adam_steps
    if None not in (here, there) and here != there:
        raise CheckFailed(f"{one} and {other} differ: Adam's step is {here} in one and {there} in the other")
    worst = comparison.arrays[0]
    if worst.same:
        return
    if worst.values is None:
        kinds = [f"{dtype} {shape_text(shape)}" for shape, dtype in zip(worst.shapes, worst.dtypes, strict=True)]
        raise CheckFailed(f"{one} and {other} differ: {worst.name} is {kinds[0]} in one and {kinds[1]} in the other")
    beyond = f" by more than {comparison.tolerance:g}" if comparison.tolerance else ""
    raise CheckFailed(
        f"{one} and {other} differ{beyond}: {worst.name} in {worst.differing:,} of {math.prod(worst.shapes[0]):,} "
        f"values, most at {list(worst.place or ())}: {worst.values[0]} and {worst.values[1]}"
    )


def format_checkpoint_comparison(comparison: CheckpointComparison) -> str:
    """Return a table for people, the largest differences first, and the arrays that only one of the two has."""
    lines = [f"{path}: {kind}" for path, kind in zip(comparison.paths, comparison.formats, strict=True)]
    head = ("shape", "dtype", "differing", "largest", "at", "here", "there", "array")
    different = [array for array in comparison.arrays if not array.same or array.place is not None]
    if different:
        lines.append(table_text(head, [_cells(array) for array in different], right=range(len(head) - 1)))
    for path, names in zip(comparison.paths, comparison.only_in, strict=True):
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        lines += [f"only in {path}: {', '.join(names[:NAMED])}{more}"] if names else []
    lines += [f"not compared: {reason}" for reason in comparison.unread]
    if comparison.adam_steps != (None, None):
        here, there = ("not told" if step is None else str(step) for step in comparison.adam_steps)
        lines.append(f"Adam's step: {here} and {there}")
    same = sum(array.same for array in comparison.arrays)
    how = f"within {comparison.tolerance:g}" if comparison.tolerance else "in every bit"
    lines.append(f"{same} of {len(comparison.arrays)} arrays that both have are the same {how}")
    return "\n".join(lines)


def _cells(array: ArrayComparison) -> list[str]:
    kinds = [" / ".join(dict.fromkeys(both)) for both in (map(shape_text, array.shapes), array.dtypes)]
    if array.values is None:
        return [*kinds, *["-"] * 5, array.name]
    largest = "not finite" if array.largest_difference is None else f"{array.largest_difference:.3g}"
    place = ",".join(map(str, array.place or ()))
    values = [f"{float(value):.6g}" for value in array.values]
    return [*kinds, f"{array.differing:,}", largest, place, *values, array.name]
