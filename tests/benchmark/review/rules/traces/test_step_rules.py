"""Steps that no machine took, or that another run took."""

from tests.benchmark.review.trials.told import rule_tests

FOUND = (
    ("steps.missing", "a fifth of the step records left out", "steps not 4,194,304 tokens after"),
    ("steps.missing", "step records twice, with the same tokens", "40 of 327 steps"),
    ("steps.size", "tokens of steps for half the batch size", "a step at 2,097,152 tokens"),
    ("steps.few_times", "every step of the same time", "288 steps with 1 different times"),
    ("steps.few_times", "step times of two values", "288 steps with 2 different times"),
    ("steps.few_times", "step times that repeat every block", "repeat every 12 steps"),
    ("steps.drawn", "step times drawn evenly from a range", "as if drawn from a range"),
    ("steps.drawn", "step times drawn from a normal distribution", "as if drawn from a normal distribution"),
    ("steps.losses", "losses of steps far from the evaluations", "training losses +2."),
    ("steps.losses", "losses of steps that do not fall", "training losses -0.2"),
    ("steps.loss_number", "losses of steps that are no numbers", "reduced_train_loss nan"),
    ("steps.validation", "validation steps longer than the evaluations they are in", "validation steps of 1.5"),
    ("steps.validation", "validation steps far shorter than the evaluations", "validation steps of 0.20"),
    ("runs.step_times", "step times of another run in another order", "as result_0.txt"),
    ("runs.losses", "losses of one run in another", "100% equal"),
    ("runs.step_times", "step times of another run, scaled and in another order", "but for a factor"),
)
test_cheat_is_told, test_nothing_is_told_of_an_honest_submission = rule_tests(FOUND, steps=True)
