"""One token counter, and nothing out of its order."""

from tests.benchmark.review.trials.told import rule_tests

FOUND = (
    ("tokens.block_starts", "first_epoch_num 0 in every block", "24 block_start, each with first_epoch_num 0"),
    ("tokens.block_stops", "first_epoch_num 0 in every block", "block_stop with first_epoch_num 0"),
    ("tokens.block_stops", "block_stop of another block than its block_start", "block_stop with first_epoch_num 7"),
    ("tokens.block_stops", "block_stop missing in half of the blocks", "17 block_stop for 24 evaluations"),
    ("tokens.evaluation", "tokens of eval_start and of its value differ", "its eval_start at 1"),
    ("eval.overlap", "training goes on before the evaluation is over", "block_start between eval_start and eval_stop"),
    ("stop.goes_on", "training goes on after run_stop", "block_start after run_stop"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND)
