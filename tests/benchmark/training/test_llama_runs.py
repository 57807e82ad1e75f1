"""A whole run of a tiny Llama from its seed: what it learns and logs, and how it goes on after a kill."""

import shutil
from pathlib import Path

import pytest

from benchmark.run_record.file_names import checkpoint_path
from benchmark.training.train import train
from tests.benchmark.llama import TINY_LLAMA
from tests.benchmark.runs import events, figures, mlperf, run
from tests.benchmark.tiny import Inputs, in_processes


@pytest.fixture(scope="module")
def run_dir(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama") / "run"
    run(inputs, folder, benchmark=TINY_LLAMA, save_interval=2)
    return folder


def test_the_loss_falls_from_that_of_chance(run_dir: Path) -> None:
    losses, _, evaluations = figures(run_dir)
    assert losses[0] == pytest.approx(4.86, abs=0.1)  # ln 128
    assert losses[-1] < losses[0] - 0.02
    assert evaluations[1] < evaluations[0]


def test_exactly_the_benchmarks_sequences_are_evaluated(run_dir: Path) -> None:
    """Ten of them, by micro-batches of six, in a batch size that does not divide them."""
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


def test_run_whose_end_is_lost_continues_from_its_checkpoint(run_dir: Path, inputs: Inputs, tmp_path: Path) -> None:
    """As after kill -9: the log and the last checkpoint are there, the summary is not."""
    again = tmp_path / "run"
    shutil.copytree(run_dir, again)
    (again / "summary.json").unlink()
    shutil.rmtree(checkpoint_path(again, 6))
    assert in_processes(1, train, inputs.config(again, TINY_LLAMA, save_interval=2)) == ["success"]
    found, due = figures(again), figures(run_dir)
    assert [part[-2:] for part in found[:2]] == [part[-2:] for part in due[:2]]
    assert found[2][-1] == due[2][-1]
    assert [event["key"] for event in mlperf(again)].count("run_stop") == 1
