"""Steps that no machine took, or that another run took."""

from pathlib import Path

import pytest

from tests.benchmark.review.trials.told import base, told, tried

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
)


@pytest.mark.parametrize(("rule", "name", "words"), FOUND, ids=[name for _, name, _ in FOUND])
def test_cheat_is_told(rule: str, name: str, words: str, tmp_path: Path) -> None:
    found = told(rule, tried(name), tmp_path)
    assert found, rule
    assert words in found[0].found
    assert all((one.found, one.due, one.mend, one.question)[place] for one in found for place in range(4))


@pytest.mark.parametrize("rule", sorted({rule for rule, *_ in FOUND}))
def test_nothing_is_told_of_an_honest_submission(rule: str, tmp_path: Path) -> None:
    assert told(rule, base(steps=True), tmp_path) == []
