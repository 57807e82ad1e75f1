"""Runs where nobody counts them, code that is none."""

from tests.benchmark.review.trials.told import rule_tests

FOUND = (
    ("package.packed_run", "a fourth run, compressed", "a compressed run in result_3.txt.gz"),
    ("package.stray_run", "runs that failed among the code", "a run in run_0.log"),
    ("package.stray_run", "runs that failed among the documents", "a run in other_runs.txt"),
    ("package.empty_code", "code files that are empty", "an empty README.md"),
    ("package.empty_code", "instructions still to be written", "README.md '# TODO: how to run it'"),
    ("package.packed_run", "runs in a zip archive beside the results", "a compressed run in more.zip"),
    ("package.stray_run", "runs in a zip archive among the code", "a run in vendored.whl"),
    ("package.stray_run", "runs in an archive of tar among the code", "a run in cache.bin"),
    ("package.stray_run", "a run in UTF-16 among the code", "a run in notes.txt"),
    ("package.stray_run", "a run in the output of a notebook", "a run in analysis.ipynb"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
