"""What a normaliser's table says of its entries, beside the entries it was made of."""

import random
import struct

import pytest

from data_prep.tokenizing.normalizer_table import DamagedTable, NormalizerTable
from tests.data_prep.random_models import charsmap_named, charsmap_of, random_rules


def test_no_table() -> None:
    table = NormalizerTable(b"")
    assert (table.alone, table.begins_longer, table.inner, table.outputs) == ({}, set(), set(), b"")


@pytest.mark.parametrize("seed", range(20))
def test_entries_are_found(seed: int) -> None:
    rules = random_rules(random.Random(seed))
    table = NormalizerTable(charsmap_of(rules))
    entries = {key.encode(): result.encode() for key, result in rules.items()}
    assert table.alone == {key[0]: result for key, result in entries.items() if len(key) == 1}
    assert table.begins_longer == {key[0] for key in entries if len(key) > 1}
    assert table.inner == {byte for key in entries for byte in key[1:]}


def test_a_large_table() -> None:
    table = NormalizerTable(charsmap_named("nmt_nfkc"))
    assert table.alone[ord("\n")] == b" "
    assert ord("e") in table.begins_longer and ord("e") not in table.alone  # with an accent behind it
    assert min(table.inner) >= 0x80


@pytest.mark.parametrize(
    "charsmap",
    [
        b"\1",
        struct.pack("<I", 8) + bytes(4),
        struct.pack("<I", 6) + bytes(6),
        charsmap_of({"x": "y"}).removesuffix(b"y\0"),
    ],
    ids=["no header", "trie too long", "half a unit", "a result outside"],
)
def test_damage_is_told(charsmap: bytes) -> None:
    with pytest.raises(DamagedTable):
        NormalizerTable(charsmap)
