"""A whole run of a tiny Llama from its seed: what it learns and logs."""

from pathlib import Path

import pytest

from tests.benchmark.llama import TINY_LLAMA
from tests.benchmark.runs import events, figures, mlperf, run
from tests.benchmark.tiny import Inputs


@pytest.fixture(scope="module")
def run_dir(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama") / "run"
    run(inputs, folder, benchmark=TINY_LLAMA)
    return folder


def test_the_loss_falls_from_that_of_chance(run_dir: Path) -> None:
    losses, _, evaluations = figures(run_dir)
    assert losses[0] == pytest.approx(4.86, abs=0.1)  # ln 128
    assert losses[-1] < losses[0] - 0.02
    assert evaluations[1] < evaluations[0]


def test_exactly_the_benchmarks_sequences_are_evaluated(run_dir: Path) -> None:
    """Ten of them, by micro-batches of two, in a batch size that does not divide them."""
    assert [event["scored_tokens"] for event in events(run_dir, "evaluation")] == [160, 160]


def test_the_log_counts_samples(run_dir: Path) -> None:
    lines = mlperf(run_dir)
    values = {line["key"]: line["value"] for line in lines}
    assert values["opt_name"] == "adamw" and values["opt_adamw_weight_decay"] == 0.1
    assert values["opt_adamw_epsilon"] == 1e-5 and "opt_adam_beta_1" not in values
    assert values["max_steps"] == 1_200_000
    assert values["opt_learning_rate_decay_steps"] == 1_200_000 - values["opt_learning_rate_warmup_steps"]
    assert values["eval_samples"] == 10 and values["train_samples"] == 72
    told = [line["metadata"]["samples_count"] for line in lines if line["key"] == "eval_accuracy"]
    assert told == [36, 72]
