"""Runs that packages of one round have in common."""

from pathlib import Path

import pytest

from benchmark.report.judgement import judge
from benchmark.review.copies_across import copies_across
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records, summary_of, write_package


def test_run_of_another_submitter_is_an_error_of_both(tmp_path: Path) -> None:
    shifted = Log(records(1))
    shifted.shift(0, 86_400_000)
    runs = {
        tmp_path / "A": [summary_of(records(1), tmp_path / "A" / "result_0.txt")],
        tmp_path / "B": [summary_of(shifted.records, tmp_path / "B" / "result_0.txt")],
        tmp_path / "C": [summary_of(records(2), tmp_path / "C" / "result_0.txt")],
    }
    found = copies_across(runs)
    assert {path.name: [one.rule for one in findings] for path, findings in found.items()} == {
        "A": ["round.same_run"],
        "B": ["round.same_run"],
        "C": [],
    }
    assert found[tmp_path / "A"][0].severity == "error"


@pytest.mark.parametrize("second", ["round/B", "other_round/B"])
def test_packages_of_one_round_are_compared_and_those_of_others_are_not(second: str, tmp_path: Path) -> None:
    first = tmp_path / "round" / "A"
    for folder in (first, tmp_path / second):
        folder.parent.mkdir(exist_ok=True)
        write_package(tmp_path).rename(folder)
    found = judge([first.parent, (tmp_path / second).parent], official=False).subjects
    copied = [[one.rule for one in subject.of("error")].count("round.same_run") for subject in found]
    assert copied == ([3, 3] if second == "round/B" else [0, 0])
    assert [subject.root.name for subject in found] == ["A", "B"]
