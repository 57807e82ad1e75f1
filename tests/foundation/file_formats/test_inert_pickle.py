"""Pickles of strangers: plain values come out, nothing is run or changed, and time and memory are bounded."""

import os
import pathlib
import pickle
import struct
import time
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from foundation.file_formats.inert_pickle import PickledName, PickledObject, UnsafePickle, attributes, load_pickle


@dataclass
class Corner:
    x: int
    name: str


class Colour(Enum):
    RED = 1


class _Runs:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made_by_a_pickle",)


def anything(name: str) -> bool:
    return True


VALUES = {
    "a": [1, 2.5, (None, True, False, ()), (1, 2, 3, 4)],
    "b": "text",
    1: {True: -(1 << 70)},
    None: [[]],
    "long": "x" * 70_000,
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values(protocol: int) -> None:
    assert load_pickle(pickle.dumps(VALUES, protocol)) == VALUES


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_bytes(protocol: int) -> None:
    assert load_pickle(pickle.dumps({b"a": b"b" * 300}, protocol)) == {b"a": b"b" * 300}


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_objects_are_described(protocol: int) -> None:
    shared = Corner(3, "c")
    content = load_pickle(pickle.dumps([shared, shared, Colour.RED, Corner, OrderedDict(a=1)], protocol), anything)
    first, second, red, name, ordered = content
    assert first is second
    assert attributes(first, "Corner") == {"x": 3, "name": "c"}
    assert first.name == f"{__name__}.Corner"
    assert red.arguments in ((1,), ()) or red.name == "builtins.getattr"
    assert type(name) is PickledName
    assert ordered.items == ["a", 1]


def test_keys_of_any_kind_are_neither_hashed_nor_compared() -> None:
    assert {type(key) for key in load_pickle(pickle.dumps({(1, 2): 3, 2.5: 4}))} == {PickledObject}
    members = load_pickle(pickle.dumps({(1, 2), (3, 4)}))
    assert sorted(members.items) == [(1, 2), (3, 4)]


def shared_tuples(levels: int) -> bytes:
    """The operations of a tuple whose items are the same tuple, level below level."""
    places = [struct.pack("<I", 10_000 + level) for level in range(levels)]
    return b")" + b"".join(b"r" + place + b"0j" + place + b"j" + place + b"\x86" for place in places)


@pytest.mark.parametrize("use", [b"K\x01s", b"K\x01u", b"\x90"])
def test_a_key_of_shared_tuples_takes_no_time(use: bytes) -> None:
    """Python's unpickler hashes it for longer than anybody waits."""
    begin = {b"s": b"}", b"u": b"}(", b"\x90": b"\x8f("}[use[-1:]]
    started = time.process_time()
    load_pickle(b"\x80\x04" + begin + shared_tuples(62) + use + b".")
    assert time.process_time() - started < 1.0


BUILT = {
    "a class": b"\x80\x04cpathlib\nPurePosixPath\n}\x8c\x07__str__\x8c\x0b/etc/passwdsb.",
    "the slots of a class": b"\x80\x04cpathlib\nPurePosixPath\n(N}\x8c\x07__str__\x8c\x0b/etc/passwdstb.",
    "a dictionary": b"\x80\x04}}\x8c\x01aK\x01sb.",
    "a tuple": b"\x80\x04)}b.",
    "an object for the second time": b"\x80\x04cpathlib\nPurePosixPath\n)\x81}b}b.",
}


@pytest.mark.parametrize("content", BUILT.values(), ids=BUILT)
def test_a_state_is_given_to_new_objects_only(content: bytes) -> None:
    before = dict(vars(pathlib.PurePosixPath))
    with pytest.raises(UnsafePickle, match="a state for"):
        load_pickle(content, anything)
    assert dict(vars(pathlib.PurePosixPath)) == before
    assert str(pathlib.PurePosixPath("/tmp/a")) == "/tmp/a"


def test_an_object_with_a_state_is_still_no_object() -> None:
    content = load_pickle(b"\x80\x04cpathlib\nPurePosixPath\n)\x81}\x8c\x07__str__\x8c\x0b/etc/passwdsb.", anything)
    assert type(content) is PickledObject
    assert str(pathlib.PurePosixPath("a")) == "a"


REFUSED = {
    "a class": (pickle.dumps(OrderedDict(a=1)), "names collections.OrderedDict, which is not known here and could"),
    "a function": (pickle.dumps(_Runs()), "mkdir, which is not known here and could run code"),
    "no end": (b"\x80\x04", "pickle exhausted before seeing STOP"),
    "nothing": (b"", "pickle exhausted before seeing STOP"),
    "an empty stack": (b"\x80\x04.", "pop from empty list"),
    "no such value": (b"\x80\x04h\x07.", "7"),
    "a persistent text": (b"Pname\n.", "the operation PERSID, which is not read here"),
    "an extension": (b"\x80\x04\x82\x01.", "the operation EXT1, which is not read here"),
    "an instance": (b"(i__main__\nA\n.", "the operation INST, which is not read here"),
    "a buffer": (b"\x80\x05\x97.", "the operation NEXT_BUFFER, which is not read here"),
    "a call of a text": (b"\x80\x04\x8c\x01a)R.", "a call of str with tuple"),
    "a call of a call": (b"\x80\x04ca\nb\n)R)R.", "a call of a.b with tuple"),
    "items of a number": (b"\x80\x04K\x01K\x01a.", "items for int"),
    "keys of a list": (b"\x80\x04]K\x01K\x01s.", "keys for list"),
    "a key without a value": (b"\x80\x04}(K\x01u.", "a key without a value"),
    "a name of a number": (b"\x80\x04K\x01\x8c\x01a\x93.", "whose name is no text"),
    "a long name": (b"\x80\x04X" + struct.pack("<I", 600) + b"a" * 600 + b"\x8c\x01a\x93.", "has 601 characters"),
    "a long integer": (b"\x80\x04\x8a\xff" + b"\x7f" * 255 + b".", "an integer of 2,039 bits"),
    "a text that is cut off": (b"\x80\x04X\xff\xff\xff\x7fa.", "expected 2147483647 bytes"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(content: bytes, message: str) -> None:
    with pytest.raises(UnsafePickle, match=message):
        load_pickle(content, lambda name: name == "a.b")


def test_operations_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foundation.file_formats.inert_pickle.MOST_OPERATIONS", 100)
    assert load_pickle(b"\x80\x04" + b"N0" * 48 + b"N.") is None
    with pytest.raises(UnsafePickle, match="more than 100 operations"):
        load_pickle(b"\x80\x04" + b"N0" * 50 + b"N.")


def test_large_places_in_the_memo_take_no_memory() -> None:
    assert load_pickle(b"\x80\x02Nr\xff\xff\xff\x7f.") is None


def test_attributes_of_something_else() -> None:
    with pytest.raises(UnsafePickle, match="int instead of an object of Corner"):
        attributes(1, "Corner")
    with pytest.raises(UnsafePickle, match="an object of Corner without named attributes"):
        attributes(PickledObject("a.Corner", ()), "Corner")
