"""Runs where nobody counts them, code that is none."""

from tests.benchmark.review.trials.told import rule_tests

FOUND = (
    ("package.packed_run", "a fourth run, compressed", "a compressed run in result_3.txt.gz"),
    ("package.stray_run", "runs that failed among the code", "a run in run_0.log"),
    ("package.stray_run", "runs that failed among the documents", "a run in other_runs.txt"),
    ("package.empty_code", "code files that are empty", "an empty README.md"),
    ("package.empty_code", "instructions still to be written", "README.md '# TODO: how to run it'"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
