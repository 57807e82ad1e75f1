"""Compare two checkpoints, array by array and value by value."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.checkpoint_files import MEGATRON, PAXML, Checkpoint, open_checkpoint
from checkpoint_convert.formats.step_files import is_counter
from checkpoint_convert.formats.stored_array import StoredArray, Values, shape_text
from checkpoint_convert.inspection.array_blocks import SEGMENT, blocks, results_in_order, segments
from checkpoint_convert.inspection.megatron_view import as_megatron
from foundation.errors import CheckFailed, InputError
from foundation.plain_text import folded, table_text
from foundation.progress import Meter, progress
from foundation.sizes import require_workers

NAMED = 5


@dataclass(frozen=True)
class Largest:
    """The largest difference so far, and the number of differences."""

    differing: int = 0
    difference: float = 0.0
    """Largest difference; ``inf`` if one side is NaN or infinite and the other is not."""
    index: tuple[int, ...] | None = None
    first_value: float = 0.0
    second_value: float = 0.0

    def __add__(self, following: "Largest") -> "Largest":
        keep = following.index is None or (self.index is not None and self.difference >= following.difference)
        return replace(self if keep else following, differing=self.differing + following.differing)


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
    settings: list[str]
    """Differences of the optimizer's settings in common.pt, such as rates and betas of a parameter group; none are
    compared unless both have that file."""
    arrays: list[ArrayComparison]
    """Comparisons of the arrays, the largest differences first."""


def compare_checkpoints(
    first_path: Path, second_path: Path, tolerance: float = 0.0, *, workers: int = 1
) -> CheckpointComparison:
    """Compare two checkpoints of one kind, or a PAXML one with a Megatron one by the table in ``array_table.py``.

    ``tolerance`` bounds the absolute difference; 0 asks for the same bits. If a PAXML checkpoint is compared with a
    Megatron one, names, places and shapes are Megatron's. Raises InputError if no array has the same name.
    """
    if not 0 <= tolerance < math.inf:
        raise InputError(f"--tolerance {tolerance}: expected a number of 0 or more")
    require_workers(workers)
    first, second = first_view, second_view = open_checkpoint(first_path), open_checkpoint(second_path)
    if (first_view.format, second_view.format) == (PAXML, MEGATRON):
        first_view = as_megatron(first_view, second_view)
    elif (first_view.format, second_view.format) == (MEGATRON, PAXML):
        second_view = as_megatron(second_view, first_view)
    pairs = {
        name: (array, second_view.arrays[name])
        for name, array in first_view.arrays.items()
        if name in second_view.arrays
    }
    if not pairs:
        formats = f"{first_path} ({first_view.format}) and {second_path} ({second_view.format})"
        raise InputError(f"{formats} have no array of the same name")
    size = sum(array.bytes for pair in pairs.values() for array in pair)
    files = sum(array.chunk_count for pair in pairs.values() for array in pair)
    with progress("compare", size, "bytes", files=files) as meter:
        arrays = [_compare(name, *pair, tolerance, workers, meter) for name, pair in pairs.items()]
    only_here, only_there = (
        [name for name in checkpoint.arrays if name not in pairs and not is_counter(name)]
        for checkpoint in (first_view, second_view)
    )
    return CheckpointComparison(
        (str(first_path), str(second_path)),
        (first_view.format, second_view.format),
        tolerance,
        only_in=(only_here, only_there),
        adam_steps=(first.steps()[1], second.steps()[1]),
        settings=_settings_differences((first, second)),
        unread=[*first_view.unread.values(), *second_view.unread.values()],
        arrays=sorted(arrays, key=lambda array: array.rank),
    )


def _settings_differences(checkpoints: tuple[Checkpoint, Checkpoint]) -> list[str]:
    first_settings, second_settings = (checkpoint.settings() for checkpoint in checkpoints)
    if first_settings is None or second_settings is None:
        return []
    names = sorted(first_settings.keys() | second_settings.keys())
    pairs = {name: (first_settings.get(name, "missing"), second_settings.get(name, "missing")) for name in names}
    return [
        f"{name} is {first} in one and {second} in the other"
        for name, (first, second) in pairs.items()
        if first != second
    ]


def _compare(
    name: str, first: StoredArray, second: StoredArray, tolerance: float, workers: int, meter: Meter
) -> ArrayComparison:
    result = ArrayComparison(name, (first.shape, second.shape), (first.dtype.name, second.dtype.name))
    if first.shape != second.shape or first.dtype != second.dtype:
        meter(first.bytes + second.bytes, files=first.chunk_count + second.chunk_count)
        return result
    cut = second if first.in_part else first  # the side of which only whole chunks can be read

    def work(box: Box) -> tuple[Largest, int]:
        with meter.doing("reading"):
            first_values, second_values = first.read(box), second.read(box)
        with meter.doing("computing"):
            start = tuple(part.start for part in box)
            size = first_values.nbytes + second_values.nbytes
            return difference(first_values, second_values, tolerance, start), size

    total = Largest()
    for block_difference, block_bytes in results_in_order(work, blocks(cut), workers, first, second):
        total += block_difference
        meter(block_bytes)
    meter(0, files=first.chunk_count + second.chunk_count)
    largest = total.difference if math.isfinite(total.difference) else None
    return replace(
        result,
        differing=total.differing,
        largest_difference=largest,
        place=total.index,
        values=None if total.index is None else (repr(total.first_value), repr(total.second_value)),
    )


def difference(first: Values, second: Values, tolerance: float, offset: tuple[int, ...]) -> Largest:
    """Return the differences of two blocks whose first value has the index ``offset`` in the array."""
    total = Largest()
    bits = np.dtype(f"u{first.dtype.itemsize}")
    for number, (first_values, second_values) in enumerate(zip(segments(first), segments(second), strict=True)):
        changed = first_values.view(bits) != second_values.view(bits)
        if not changed.any():
            continue
        first_numbers, second_numbers = first_values.astype(np.float64), second_values.astype(np.float64)
        with np.errstate(invalid="ignore"):  # of infinities
            apart = np.abs(first_numbers - second_numbers)
        apart[np.isnan(apart)] = math.inf
        apart[~changed | (np.isnan(first_numbers) & np.isnan(second_numbers))] = 0.0
        differing = changed if tolerance == 0 else apart > tolerance
        at = int(np.argmax(np.where(changed, apart, -1.0)))
        position = np.unravel_index(number * SEGMENT + at, first.shape)
        index = tuple(int(axis) + start for axis, start in zip(position, offset, strict=True))
        total += Largest(
            int(differing.sum()), float(apart[at]), index, float(first_numbers[at]), float(second_numbers[at])
        )
    return total


def require_same_checkpoints(comparison: CheckpointComparison) -> None:
    """Raise CheckFailed if the checkpoints differ, naming the array that differs most and the index."""
    differ = " and ".join(comparison.paths) + " differ"
    for path, names in zip(comparison.paths, comparison.only_in, strict=True):
        if names:
            raise CheckFailed(f"{differ}: {len(names)} arrays are only in {path}, first {names[0]}")
    first_step, second_step = comparison.adam_steps
    if None not in (first_step, second_step) and first_step != second_step:
        raise CheckFailed(f"{differ}: Adam's step is {first_step} in one and {second_step} in the other")
    if comparison.settings:
        raise CheckFailed(f"{differ}: {comparison.settings[0]} in common.pt")
    worst = comparison.arrays[0]
    if worst.same:
        return
    if worst.values is None:
        kinds = [f"{dtype} {shape_text(shape)}" for shape, dtype in zip(worst.shapes, worst.dtypes, strict=True)]
        raise CheckFailed(f"{differ}: {worst.name} is {kinds[0]} in one and {kinds[1]} in the other")
    beyond = f" by more than {comparison.tolerance:g}" if comparison.tolerance else ""
    raise CheckFailed(
        f"{differ}{beyond}: {worst.name} in {worst.differing:,} of {math.prod(worst.shapes[0]):,} values, most at "
        f"{list(worst.place or ())}: {worst.values[0]} and {worst.values[1]}"
    )


def format_checkpoint_comparison(comparison: CheckpointComparison) -> str:
    """Return a table for people, the largest differences first, and the arrays that only one of the two has."""
    lines = [f"{path}: {kind}" for path, kind in zip(comparison.paths, comparison.formats, strict=True)]
    head = ("", "shape", "dtype", "differing", "largest", "at", "here", "there")
    different = [array for array in comparison.arrays if not array.same or array.place is not None]
    if different:
        captions = {number: array.name for number, array in enumerate(different)}
        lines.append(table_text(head, [_cells(array) for array in different], captions=captions))
    for path, names in zip(comparison.paths, comparison.only_in, strict=True):
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        lines += [folded(f"only in {path}: {', '.join(names[:NAMED])}{more}")] if names else []
    lines += [f"not compared: {reason}" for reason in comparison.unread]
    if comparison.adam_steps != (None, None):
        first_step, second_step = ("not known" if step is None else str(step) for step in comparison.adam_steps)
        lines.append(f"Adam's step: {first_step} and {second_step}")
    lines += [f"common.pt: {difference}" for difference in comparison.settings]
    same = sum(array.same for array in comparison.arrays)
    how = f"within {comparison.tolerance:g}" if comparison.tolerance else "in every bit"
    lines.append(f"{same} of {len(comparison.arrays)} arrays that both have are the same {how}")
    return "\n".join(lines)


def _cells(array: ArrayComparison) -> list[str]:
    kinds = ["", *(" / ".join(dict.fromkeys(pair)) for pair in (map(shape_text, array.shapes), array.dtypes))]
    if array.values is None:
        return [*kinds, *["-"] * 5]
    largest = "not finite" if array.largest_difference is None else f"{array.largest_difference:.3g}"
    index = ",".join(map(str, array.place or ()))
    values = [f"{float(value):.6g}" for value in array.values]
    return [*kinds, f"{array.differing:,}", largest, index, *values]
