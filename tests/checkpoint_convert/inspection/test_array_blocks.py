"""Blocks of arrays: every value once, no more memory than they may take, results in order, figures without lost
digits."""

import math
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.stored_array import StoredArray, Values
from checkpoint_convert.inspection import array_blocks
from checkpoint_convert.inspection.array_blocks import blocks, results_in_order
from checkpoint_convert.inspection.inspect_checkpoint import Statistics, statistics


@dataclass(frozen=True)
class Described(StoredArray):
    """An array of which nothing is read."""

    parts: bool = True

    def read(self, box: Box) -> Values:
        raise NotImplementedError

    @property
    def in_part(self) -> bool:
        return self.parts


F4 = np.dtype("f4")


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("in_part", [False, True])
@pytest.mark.parametrize(
    ("shape", "chunks"), [((7, 30, 20), (1, 8, 5)), ((96,), (40,)), ((), ()), ((40, 30), (40, 30))]
)
def test_blocks_cover_every_value_once(
    shape: tuple[int, ...], chunks: tuple[int, ...], in_part: bool, in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_blocks, "BLOCK_BYTES", 1000)
    values = np.arange(math.prod(shape), dtype=F4).reshape(shape)
    read = [values[box] for box in blocks(Described(shape, F4, chunks, in_part), in_order=in_order)]
    together = np.concatenate([block.reshape(-1) for block in read])
    np.testing.assert_array_equal(together if in_order else np.sort(together), values.reshape(-1))
    if in_part or in_order:
        assert max(block.nbytes for block in read) <= 1000


@pytest.mark.parametrize(("in_part", "alone"), [(True, False), (False, True)])
def test_blocks_that_fill_the_memory_are_worked_on_alone(in_part: bool, alone: bool) -> None:
    meeting, working, at_once = threading.Barrier(2), threading.Semaphore(1), list[bool]()

    def work(box: Box) -> int:
        at_once.append(not working.acquire(blocking=False))
        time.sleep(0.01) if alone else meeting.wait(60)
        working.release()
        return int(box[0].start)

    boxes = ((slice(start, start + 1),) for start in range(6))
    found = results_in_order(work, boxes, 4, Described((1 << 30,), F4, (1 << 30,), in_part))
    assert list(found) == [0, 1, 2, 3, 4, 5]
    assert any(at_once) != alone


def test_digits_are_kept_far_from_zero() -> None:
    """The sum of squares minus the square of the sum would be noise here."""
    values = 1e9 + np.random.default_rng(0).normal(size=3_000_000)
    total = sum((statistics(part) for part in np.array_split(values, 7)), Statistics())
    assert total.sd == pytest.approx(values.std(), rel=1e-9)
    assert total.mean == pytest.approx(values.mean(), rel=1e-15)


def test_figures_of_a_few_values() -> None:
    some = statistics(np.array([[1.0, 0.0, math.nan], [-0.0, 3.0, math.inf]], F4))
    assert (some.zeros, some.nan, some.inf, some.finite, some.minimum, some.maximum) == (2, 1, 1, 4, 0.0, 3.0)
    assert (some.mean, some.sd**2) == pytest.approx((1.0, 1.5))
    assert some + Statistics() == some == Statistics() + some
    assert statistics(np.zeros((0, 3))) == Statistics()
