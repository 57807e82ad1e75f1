"""A few random hostile packages; ``python -m tests.fuzz.hostile_reviews`` tries as many as one likes."""

from pathlib import Path

import pytest

from tests.fuzz.hostile_reviews import faults


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_hostile_package_reaches_out(seed: int, tmp_path: Path) -> None:
    assert list(faults(seed, tmp_path)) == []
