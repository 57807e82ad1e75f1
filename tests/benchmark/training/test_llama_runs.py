"""Whole runs of a tiny Llama from its seed: numbers do not depend on the topology, and runs go on as they were."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.system_config import System
from benchmark.training.train import train
from tests.benchmark.llama import TINY_LLAMA, llama_config
from tests.benchmark.runs import figures, mlperf, system_of
from tests.benchmark.tiny import Inputs, in_processes

TOPOLOGIES = {
    "two devices": system_of(2, micro_batch_size=2),
    "full recomputation": system_of(1, micro_batch_size=2, recompute="full"),
    "tensor parallel, selective recomputation": system_of(
        2, tensor_parallel=2, micro_batch_size=6, recompute="selective"
    ),
    "pipeline": system_of(2, pipeline_parallel=2, micro_batch_size=2),
    "interleaved pipeline, tensor parallel": system_of(
        4, tensor_parallel=2, pipeline_parallel=2, pipeline_chunks=2, micro_batch_size=6
    ),
}


def run(inputs: Inputs, run_dir: Path, system: System, **fields: Any) -> list[list[float]]:
    statuses = in_processes(system.num_devices, train, llama_config(inputs, run_dir, system, **fields))
    assert statuses == ["success"] * system.num_devices
    return figures(run_dir)


@pytest.fixture(scope="module")
def single_folder(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("single") / "run"
    run(inputs, folder, system_of(1, micro_batch_size=2))
    return folder


def test_the_loss_falls_from_that_of_chance(single_folder: Path) -> None:
    losses, _, evaluations = figures(single_folder)
    assert losses[0] == pytest.approx(4.86, abs=0.1)  # ln 128
    assert losses[-1] < losses[0] - 0.02
    assert evaluations[1] < evaluations[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topology_does_not_change_the_run(name: str, inputs: Inputs, single_folder: Path, tmp_path: Path) -> None:
    found_figures = run(inputs, tmp_path / "run", TOPOLOGIES[name])
    for found, expected in zip(found_figures, figures(single_folder), strict=True):
        assert found == pytest.approx(expected, rel=2e-6)


@pytest.mark.slow
def test_a_continued_run_is_the_uninterrupted_one(inputs: Inputs, single_folder: Path, tmp_path: Path) -> None:
    """To the bit: stopped after its third step, continued from its checkpoint."""
    system = system_of(1, micro_batch_size=2)
    run(inputs, tmp_path / "run", system, save_interval=3, keep_checkpoints=9)
    (tmp_path / "run" / "summary.json").unlink()
    run(inputs, tmp_path / "run", system, save_interval=3, keep_checkpoints=9, resume_from=3)
    losses, norms, evaluations = figures(tmp_path / "run")
    due = figures(single_folder)
    assert losses[-3:] == due[0][3:] and norms[-3:] == due[1][3:] and evaluations[-1] == due[2][-1]


def test_the_log_counts_samples(single_folder: Path) -> None:
    lines = mlperf(single_folder)
    values = {line["key"]: line["value"] for line in lines}
    assert values["opt_name"] == "adamw" and values["opt_adamw_weight_decay"] == 0.1
    assert values["opt_adamw_epsilon"] == 1e-5 and "opt_adam_beta_1" not in values
    assert values["max_steps"] == 1_200_000
    assert values["opt_learning_rate_decay_steps"] == 1_200_000 - values["opt_learning_rate_warmup_steps"]
    assert values["eval_samples"] == 10 and values["train_samples"] == 72
    told = [line["metadata"]["samples_count"] for line in lines if line["key"] == "eval_accuracy"]
    assert told == [36, 72]


def test_the_cosine_ends_at_the_same_step_in_every_batch_size() -> None:
    assert dataclasses.replace(TINY_LLAMA, global_batch_size=24).optimizer.lr_decay_samples == 24 * 1_200_000
