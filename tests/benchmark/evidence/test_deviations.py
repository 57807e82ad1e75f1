"""A deviation in a line."""

from benchmark.evidence.deviations import Deviation


def test_line() -> None:
    assert (
        Deviation(3, "loss", "2.5", "2.6", "0.04 apart").line() == "step 3: loss: recorded 2.5, found 2.6 (0.04 apart)"
    )
    assert Deviation(None, "seed", "1", "2").line() == "seed: recorded 1, found 2"
