"""Results that can make a submission; those that cannot are in test_package.py."""

from pathlib import Path

import pytest

from benchmark.submission.package_results import read_results
from stage.errors import InputError
from tests.benchmark.review.fixture import records, write_run


def test_three_logs_of_gpt3_are_read_in_their_order(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / str(seed), records(seed)) for seed in (3, 1, 2)]
    assert [list(result.summary.seeds) for result in read_results(paths)] == [[3], [1], [2]]


def test_copies_under_two_names_are_refused(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / name, records(seed)) for name, seed in (("a", 1), ("b", 2), ("c", 1))]
    with pytest.raises(InputError, match=r"c/result_0\.txt: the same log as .*a/result_0\.txt; give three"):
        read_results(paths)
