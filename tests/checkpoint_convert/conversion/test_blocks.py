"""Blocks, however an array is cut: each is whole output chunks, and together they are all of them."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_convert.conversion.blocks import Side, cut
from checkpoint_convert.formats.array_table import ARRAYS, chunk_shape

SIZES = st.fixed_dictionaries(
    {"L": st.integers(1, 5), "C": st.just(3), "N": st.integers(1, 5), "D": st.integers(1, 6), "V": st.integers(1, 40)}
)


@settings(max_examples=300)
@given(SIZES, st.data())
def test_blocks_cover_every_output_chunk_once(sizes: dict[str, int], data: st.DataObject) -> None:
    sizes = {**sizes, "H": sizes["N"] * sizes["D"], "F": 4 * sizes["N"] * sizes["D"], "P": 7}
    array = data.draw(st.sampled_from(ARRAYS))
    shapes = {"paxml": array.paxml_shape(sizes), "megatron": array.megatron_shape(sizes)}
    sides = {
        "paxml": Side(array.paxml_groups(), tuple(data.draw(st.integers(1, n)) for n in shapes["paxml"])),
        "megatron": Side(array.megatron_groups(), chunk_shape(shapes["megatron"])),
    }
    source, target = data.draw(st.permutations(["paxml", "megatron"]))
    sides[target] = Side(sides[target].groups, chunk_shape(shapes[target]))
    most = data.draw(st.integers(0, 5000))
    chosen = cut(sizes, sides[source], sides[target], most_items=most, comfortable_items=data.draw(st.integers(0, 900)))
    assert chosen.block_items <= most or chosen.block == chosen.unit
    keys = []
    for block in chosen.blocks():
        covered = math.prod(part.stop - part.start for part in chosen.merged(block, sides[source]))
        assert covered == math.prod(part.stop - part.start for part in block)
        for unit in chosen.units(block):
            for key, within in chosen.files(unit):
                keys.append(key)
                extent = [part.stop - part.start for part in within]
                assert extent == list(sides[target].chunks)
    grid = [n // chunk for n, chunk in zip(shapes[target], sides[target].chunks, strict=True)]
    assert sorted(keys) == sorted(".".join(map(str, index)) for index in np.ndindex(*grid))
