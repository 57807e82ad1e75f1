"""Blocks of arrays: every value once, no more memory than they may take, results in the blocks' order."""

import math
import threading
import time

import numpy as np
import pytest

from checkpoint_convert.formats.boxes import Box
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.inspection import array_blocks
from checkpoint_convert.inspection.array_blocks import blocks, results_in_order


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("in_part", [False, True])
@pytest.mark.parametrize(
    ("shape", "chunks"), [((7, 30, 20), (1, 8, 5)), ((96,), (40,)), ((), ()), ((40, 30), (40, 30))]
)
def test_blocks_cover_every_value_once(
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    in_part: bool,
    in_order: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(array_blocks, "BLOCK_BYTES", 1000)
    values = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    array = StoredArray(shape, values.dtype, chunks, lambda: (0, 0), values.__getitem__, in_part)
    read = [values[box] for box in blocks(array, in_order=in_order)]
    together = np.concatenate([block.reshape(-1) for block in read])
    np.testing.assert_array_equal(together if in_order else np.sort(together), values.reshape(-1))
    if in_part or in_order:
        assert max(block.nbytes for block in read) <= 1000


SMALL = StoredArray((20,), np.dtype("f4"), (1,), lambda: (0, 0), lambda box: np.zeros(0))


def test_results_come_in_the_boxes_order() -> None:
    boxes = [(slice(number, number + 1),) for number in range(20)]

    def work(box: Box) -> int:
        time.sleep(0.002 * (box[0].start % 3))
        return int(box[0].start)

    assert list(results_in_order(work, boxes, 3, SMALL)) == list(range(20))


@pytest.mark.parametrize(("in_part", "alone"), [(True, False), (False, True)])
def test_blocks_that_fill_the_memory_are_worked_on_alone(in_part: bool, alone: bool) -> None:
    at_once: list[bool] = []
    working = threading.Semaphore(1)
    array = StoredArray((1 << 30,), np.dtype("f4"), (1 << 30,), lambda: (0, 0), lambda box: np.zeros(0), in_part)

    def work(box: Box) -> None:
        at_once.append(working.acquire(blocking=False))
        time.sleep(0.01)
        working.release()

    list(results_in_order(work, [(slice(0, 1),)] * 5, 4, array))
    assert all(at_once) == alone
