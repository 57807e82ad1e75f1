"""What a log says under keys of its own: another model, other data, another schedule or another evaluation."""

from typing import Any

from tests.benchmark.review.trials.cheats.cheats_in_records import insert
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial
from tests.benchmark.review.trials.trial_table import Change, TrialTable

cheat = TrialTable()
OWN_KEYS: tuple[tuple[str, str, Any], ...] = (
    ("attention to the last 1,024 tokens only", "sliding_window", 1024),
    ("keys and values shared by groups of heads", "num_query_groups", 8),
    ("experts, of which few are active", "num_experts", 8),
    ("layers dropped at random", "layerdrop", 0.1),
    ("sequences that grow with time", "curriculum_seqlen", 512),
    ("batch size that grows with time", "rampup_batch_size", "256 256 1000000"),
    ("evaluation of averaged weights", "ema_decay", 0.999),
    ("validation on the training split", "validation_split", "train"),
    ("weights decayed by another rate", "weight_decay", 0.01),
    ("another second beta", "adam_beta2", 0.999),
    ("another rate", "learning_rate", 6e-5),
    ("another clip of gradients", "clip_grad", 10.0),
    ("smoothed labels", "label_smoothing", 0.1),
    ("weights started from another checkpoint", "init_checkpoint", "gpt3-175b-step-8000"),
    ("weights of a finished model as teacher", "distillation_teacher", "gpt3-175b-final"),
    ("precision that the rules do not list", "precision", "int2"),
    ("every second sample skipped", "data_skip", 2),
    ("target of its own", "target_accuracy", 2.75),
)
"""What it means, key, value."""


def _own_key(key: str, value: Any) -> Change:
    def change(one: SubmissionOnTrial) -> None:
        one.each(lambda log: insert(log, "init_stop", key, value))

    return change


for _words, _key, _value in OWN_KEYS:
    cheat(f"a key of its own: {_words}", "asked")(_own_key(_key, _value))
