"""A few rounds of what fuzz_replay does in thousands."""

from pathlib import Path

import pytest

from tests.benchmark.replay.fuzz_replay import one_round


@pytest.mark.slow
def test_no_damage_ends_in_a_traceback(honest_run: Path) -> None:
    came = [one_round(honest_run, seed) for seed in range(25)]
    assert came.count("mismatches") >= 10
    assert "refused" in came
