"""Runs where nobody counts them, code that is none."""

from pathlib import Path

import pytest

from tests.benchmark.review.trials.told import base, told, tried

FOUND = (
    ("package.packed_run", "a fourth run, compressed", "a compressed run in result_3.txt.gz"),
    ("package.stray_run", "runs that failed among the code", "a run in run_0.log"),
    ("package.stray_run", "runs that failed among the documents", "a run in other_runs.txt"),
    ("package.empty_code", "code files that are empty", "an empty README.md"),
    ("package.empty_code", "instructions still to be written", "README.md '# TODO: how to run it'"),
)


@pytest.mark.parametrize(("rule", "name", "words"), FOUND, ids=[name for _, name, _ in FOUND])
def test_cheat_is_told(rule: str, name: str, words: str, tmp_path: Path) -> None:
    found = told(rule, tried(name), tmp_path)
    assert found, rule
    assert words in found[0].found
    assert all((one.found, one.due, one.mend, one.question)[place] for one in found for place in range(4))


@pytest.mark.parametrize("rule", sorted({rule for rule, *_ in FOUND}))
def test_nothing_is_told_of_an_honest_submission(rule: str, tmp_path: Path) -> None:
    assert told(rule, base(), tmp_path) == []
