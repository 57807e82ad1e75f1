"""Curves made of others, and whose they are."""

from tests.benchmark.review.trials.told import rule_tests

FOUND = (
    ("runs.mixture", "third run is the mean of the two others", "a curve that is 0.50 of result_"),
    (
        "runs.mixture",
        "third run is 0.8 of one and 0.2 of the other, noise 1e-5",
        "0.82 of result_0.txt and 0.18 of result_1.txt",
    ),
    ("runs.mixture", "mean of two published runs", "of the published v"),
    ("runs.mixture", "mean of two published runs with noise of 2e-5", "a curve that is"),
    ("runs.mixture", "mean of three published runs", " and 0.3"),
    ("runs.mixture", "point by point from two published runs, noise of 1e-5", "values that are those of the published"),
    ("runs.mixture", "point by point from its two other runs, noise of 1e-5", "values that are those of result_"),
    ("runs.mixture", "extrapolated: 1.4 of a published run less 0.4 of another", "-0.4"),
    (
        "runs.mixture",
        "second run mirrored about the median curve",
        "the noise of result_0.txt on another curve, mirrored",
    ),
    ("runs.mixture", "published run between its evaluations", "read between its evaluations"),
    ("runs.mixture", "noise of one run in another, evaluation by evaluation backwards", "backwards"),
    ("runs.mixture", "median curve with a tenth of honest noise", "the median curve of its batch size"),
    ("runs.mixture", "blend of two published runs, five of its values drawn anew", "in all but 5 values"),
    ("runs.mixture", "a published run bent by a parabola, noise of 1e-5", "bent by a parabola"),
    ("runs.mixture", "a third run made of the others' noise on its own curve: sums of both", "the noise of result_"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
