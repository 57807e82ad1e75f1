"""Where a text may be cut, as read off the model, and the entries of its normaliser's table."""

import random
import struct

import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from data_prep.tokenizing.cut_rules import (
    ALWAYS,
    IF_PLAIN_FOLLOWS,
    NEVER,
    CutRules,
    NoGuarantee,
    NormalizerTable,
    cut_rules,
)
from tests.data_prep.models import Models
from tests.data_prep.random_models import charsmap_of, random_rules


def test_rules_are_read_off_the_model(models: Models) -> None:
    rules = cut_rules(models["reference"].read_bytes())
    assert rules.newline_is_space
    assert [chr(code) for code in np.flatnonzero(rules.plain)] == [chr(code) for code in range(0x21, 0x7F)]
    assert not cut_rules(models["as it is"].read_bytes()).newline_is_space
    lower_case = cut_rules(models["lower case"].read_bytes()).plain
    assert not lower_case[ord("A")] and lower_case[ord("a")]


def test_places_between_two_characters(models: Models) -> None:
    rules = cut_rules(models["reference"].read_bytes())

    def between(pair: str) -> int:
        return int(rules.between[ord(pair[0]) << 8 | ord(pair[1])])

    assert between("a ") == between("  ") == ALWAYS  # pieces hold a space only in front
    assert between("th") == between(" t") == NEVER  # side by side in a piece
    assert between("7~") == between("~q") == IF_PLAIN_FOLLOWS
    assert int(rules.between[0xC3 << 8 | ord("x")]) == NEVER  # within or behind a character that is not plain


def test_what_is_no_model_has_no_guarantee() -> None:
    with pytest.raises(NoGuarantee, match="its description cannot be read"):
        cut_rules(b"no model")


def rules_with(models: Models, charsmap: bytes, **spoiled: float) -> CutRules:
    """Of the reference's model with another normaliser."""
    model = model_pb2.ModelProto()
    model.ParseFromString(models["reference"].read_bytes())
    model.normalizer_spec.precompiled_charsmap = charsmap
    if "score" in spoiled:
        model.pieces[-1].score = spoiled["score"]
    return cut_rules(model.SerializeToString())


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({" ": "_"}, "begin with a space"),
        ({" \u0308": "\u00a8"}, "begin with a space"),
        ({"a b": "c"}, "ASCII characters inside"),
        ({"\u0308a": "c"}, "ASCII characters inside"),
        ({"\u3000 ": " "}, "ASCII characters inside"),
        ({"\u2003": "  "}, "several spaces"),
        ({"\u2003": "x  "}, "several spaces"),
        ({"\u2003": "\u2581"}, "several spaces at once, or U\\+2581"),
        ({"_": "\u2581"}, "several spaces at once, or U\\+2581"),
    ],
)
def test_normalisers_that_touch_what_cuts_rely_on(rules: dict[str, str], reason: str, models: Models) -> None:
    with pytest.raises(NoGuarantee, match=reason):
        rules_with(models, charsmap_of(rules))


@pytest.mark.parametrize(
    ("rules", "newline_is_space"),
    [
        ({"\n": " "}, True),
        ({"\n": " ", "\t": " \u00b4"}, True),
        ({"\n": " x"}, False),
        ({"\n": " ", "\n\u0301": "\u00b4"}, False),
        ({"\n\u0301": "\u00b4"}, False),
        ({"\n": " ", "\r\n": " "}, False),
    ],
)
def test_a_newline_is_a_space_only_where_nothing_else_knows_it(
    rules: dict[str, str], newline_is_space: bool, models: Models
) -> None:
    assert rules_with(models, charsmap_of(rules)).newline_is_space == newline_is_space


def test_scores_without_an_order(models: Models) -> None:
    with pytest.raises(NoGuarantee, match="scores of its pieces"):
        rules_with(models, b"", score=float("nan"))


def test_entries_of_a_table_are_found() -> None:
    for seed in range(20):
        rules = random_rules(random.Random(seed))
        table = NormalizerTable(charsmap_of(rules))
        entries = {key.encode(): result.encode() for key, result in rules.items()}
        assert table.alone == {key[0]: result for key, result in entries.items() if len(key) == 1}
        assert table.begins_longer == {key[0] for key in entries if len(key) > 1}
        assert table.inner == {byte for key in entries for byte in key[1:]}


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
def test_a_damaged_table_is_told(charsmap: bytes) -> None:
    with pytest.raises(NoGuarantee, match="its normaliser's table is damaged: "):
        NormalizerTable(charsmap)
