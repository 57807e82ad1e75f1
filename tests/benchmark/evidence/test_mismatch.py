"""A deviation in a line."""

from benchmark.evidence.mismatch import MOST_SHOWN, Mismatch


def test_line() -> None:
    assert (
        Mismatch(3, "loss", "2.5", "2.6", "0.04 apart").line() == "step 3: loss: recorded 2.5, found 2.6 (0.04 apart)"
    )
    assert Mismatch(None, "seed", "1", "2").line() == "seed: recorded 1, found 2"


def test_a_stranger_s_text_reaches_no_terminal() -> None:
    line = Mismatch(None, "status", "\x1b[2Jok\n", "x" * 10_000).line()
    assert line.startswith("status: recorded \\x1b[2Jok\\n, found xxx")
    assert len(line) < MOST_SHOWN + 60
