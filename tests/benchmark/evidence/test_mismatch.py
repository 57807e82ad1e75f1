"""A deviation in a line."""

from benchmark.evidence.mismatch import Mismatch


def test_line() -> None:
    assert (
        Mismatch(3, "loss", "2.5", "2.6", "0.04 apart").line() == "step 3: loss: recorded 2.5, found 2.6 (0.04 apart)"
    )
    assert Mismatch(None, "seed", "1", "2").line() == "seed: recorded 1, found 2"
