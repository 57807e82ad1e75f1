"""Blocks and how many at once: within the memory, and the input once where that is possible at all."""

import pytest

from checkpoint_convert.conversion.block_choice import bytes_to_read_once, choose_blocks
from checkpoint_convert.conversion.blocks import Side
from stage.errors import InputError

SIZES = {"A": 64, "B": 60}
SOURCE, TARGET = Side((("A",), ("B",)), (64, 6)), Side((("B",), ("A",)), (60, 4))
"""Every output chunk needs all input chunks: only the whole array reads each once."""


def test_more_workers_do_not_read_the_input_more_often() -> None:
    once = bytes_to_read_once(SIZES, SOURCE, TARGET)
    for workers in (1, 2, 5, 16, 224):
        for memory in (once, once + 1, 3 * once, 100 * once):
            choice = choose_blocks(memory, workers, SIZES, SOURCE, TARGET)
            assert choice.cut.passes == 1
            assert choice.memory_bytes <= memory
            assert choice.at_once <= workers


def test_where_memory_is_short_it_is_kept_to() -> None:
    least = choose_blocks(1 << 30, 1, SIZES, Side(SOURCE.groups, (4, 60)), TARGET)
    assert least.cut.passes == 1
    for memory in range(30_000, 90_000, 5_000):
        choice = choose_blocks(memory, 8, SIZES, SOURCE, TARGET)
        assert choice.memory_bytes <= memory
    with pytest.raises(InputError, match=r"--memory-limit is too small: one block takes .* pass 1MiB or more"):
        choose_blocks(4096, 8, SIZES, SOURCE, TARGET)
