"""Clocks that tick too coarsely, too evenly, or like another run."""

from tests.benchmark.review.trials.told import rule_tests

FOUND = (
    ("clock.coarse", "stamps in whole seconds", "whole 1000 ms"),
    ("clock.coarse", "stamps in tenths of a second", "whole 100 ms"),
    ("clock.coarse", "intervals in multiples of 50 ms", "multiples of 50 ms"),
    ("clock.few_intervals", "intervals of two values only", "of which 2 differ"),
    ("clock.few_intervals", "intervals that grow by the same from one to the next", "change by 4 ms each time"),
    (
        "clock.before_init",
        "40 minutes between cache_clear and init_start",
        "init_start 2,400 s after the first record, cache_clear",
    ),
    ("clock.before_benchmark", "stamps of a year before the accelerators were sold", "before the first published run"),
    ("runs.reordered_times", "intervals of a published run in another order", "of the published v"),
    ("runs.reordered_times", "intervals of the first run backwards in the second", "of result_0.txt, in another order"),
    (
        "runs.mean_times",
        "third run's intervals are the means of the two others'",
        "the means of those of result_0.txt and result_1.txt",
    ),
    ("runs.same_instant", "three runs at the same time to the second", "run_start 7 ms after that of result_0.txt"),
    (
        "clock.coarse",
        "stamps in whole seconds, each with up to 4 ms added",
        "within 100 ms of whole 1000 ms",
    ),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
