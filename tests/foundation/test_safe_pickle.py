"""Pickles of strangers: plain values come out, nothing is run, and no memory is taken that they lack."""

import os
import pickle
from collections import OrderedDict
from typing import Any

import pytest

from foundation.safe_pickle import UnsafePickle, load_pickle


class _Runs:
    def __reduce__(self) -> Any:
        return os.mkdir, ("made_by_a_pickle",)


def test_plain_values_and_known_classes() -> None:
    value = {"a": [1, 2.5, (None, True)], "b": "text"}
    assert load_pickle(pickle.dumps(value)) == value
    known = {("collections", "OrderedDict"): OrderedDict}
    assert load_pickle(pickle.dumps(OrderedDict(a=1)), known) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (pickle.dumps(OrderedDict(a=1)), "collections.OrderedDict, which is not known"),
        (pickle.dumps(_Runs()), "which is not known here and could run code"),
        (b"\x80\x04", "pickle exhausted|no data|truncated|end"),
        (b"\x80\x02r\xff\xff\xff\x7f.", "LONG_BINPUT 2147483647 in"),
    ],
)
def test_anything_else_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(UnsafePickle, match=told):
        load_pickle(content)
