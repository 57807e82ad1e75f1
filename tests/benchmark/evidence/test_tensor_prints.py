"""Fingerprints as text, and sums of 64 bits that were sent as float64."""

import numpy as np
import pytest

from benchmark.evidence.tensor_prints import PRINT, PROJECTION, as_text, from_text, joined_halves
from stage.errors import InputError


def test_text_and_back() -> None:
    prints = np.array([0, 1, 2**64 - 1, 2**63], dtype=np.uint64)
    assert (from_text(as_text(prints, PRINT), PRINT, 4, "it") == prints).all()
    assert from_text(as_text(np.array([0.5, -1e9]), PROJECTION), PROJECTION, 2, "it").tolist() == [0.5, -1e9]


@pytest.mark.parametrize("text", ["", "AAAA", "AAAAAAAAAAA", "AAAAAAAAAAA=AAAA", "ÄAAAAAAAAAA=", "AAAAAAA\nAAAA="])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"step 3: .* expected 1 values of 8 bytes in base64"):
        from_text(text, PRINT, 1, "step 3")


def test_halves_of_many_processes_add_up_as_wrapped_sums() -> None:
    parts = np.random.default_rng(1).integers(0, 2**64, size=(2048, 5), dtype=np.uint64)
    low, high = (parts & np.uint64(2**32 - 1)).astype(np.float64), (parts >> np.uint64(32)).astype(np.float64)
    expected = [sum(map(int, column)) % 2**64 for column in parts.T]
    assert joined_halves(low.sum(0), high.sum(0)).tolist() == expected
