"""Blocks, however an array is cut: each is whole output chunks, together they are all; memory is kept to."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_convert.conversion.blocks import ArrayAxes, Side, bytes_to_read_once, choose_blocks, cut_array
from checkpoint_convert.formats.array_table import ARRAYS, chunk_shape
from stage.errors import InputError

SIZES = st.fixed_dictionaries(
    {"L": st.integers(1, 5), "C": st.just(3), "N": st.integers(1, 5), "D": st.integers(1, 6), "V": st.integers(1, 40)}
)
TURNED = ArrayAxes({"A": 64, "B": 60}, Side("A B", (64, 6)), Side("B A", (60, 4)))
"""Every output chunk needs all input chunks: only the whole array reads each once."""


@settings(max_examples=300)
@given(SIZES, st.data())
def test_blocks_cover_every_output_chunk_once(sizes: dict[str, int], data: st.DataObject) -> None:
    sizes = {**sizes, "H": sizes["N"] * sizes["D"], "F": 4 * sizes["N"] * sizes["D"], "P": 7}
    array = data.draw(st.sampled_from(ARRAYS))
    layouts = [(array.paxml_shape(sizes), array.paxml_axes), (array.megatron_shape(sizes), array.megatron_axes)]
    (from_shape, from_layout), (shape, layout) = data.draw(st.permutations(layouts))
    source = Side(from_layout, tuple(data.draw(st.integers(1, size)) for size in from_shape))
    axes = ArrayAxes(sizes, source, Side(layout, chunk_shape(shape)))
    most = data.draw(st.integers(0, 5000))
    chosen = cut_array(axes, most_items=most, comfortable_items=data.draw(st.integers(0, 900)))
    assert math.prod(chosen.block) <= most or chosen.block == chosen.unit
    keys = []
    for block in chosen.blocks():
        covered = math.prod(part.stop - part.start for part in axes.merged(block, source))
        assert covered == math.prod(part.stop - part.start for part in block)
        for unit in chosen.units(block):
            for key, within in axes.files(unit):
                keys.append(key)
                assert [part.stop - part.start for part in within] == list(axes.target.chunks)
    grid = [size // chunk for size, chunk in zip(shape, axes.target.chunks, strict=True)]
    assert sorted(keys) == sorted(".".join(map(str, index)) for index in np.ndindex(*grid))


def test_more_workers_do_not_read_the_input_more_often() -> None:
    once = bytes_to_read_once([TURNED])
    for workers in (1, 2, 5, 16, 224):
        for memory in (once, once + 1, 3 * once, 100 * once):
            choice = choose_blocks(memory, workers, [TURNED])
            assert choice.passes == 1
            assert choice.memory_bytes <= memory
            assert choice.at_once <= workers


def test_where_memory_is_short_it_is_kept_to() -> None:
    for memory in range(30_000, 90_000, 5_000):
        assert choose_blocks(memory, 8, [TURNED]).memory_bytes <= memory
    with pytest.raises(InputError, match=r"--memory-limit is too small: a block .* pass 1MiB or more"):
        choose_blocks(4096, 8, [TURNED])
