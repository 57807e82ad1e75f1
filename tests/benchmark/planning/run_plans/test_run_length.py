"""How many tokens, steps and evaluations a run has."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plans.run_length import (
    evaluation_sequences,
    expected_length,
    run_length,
    tokens_to_target,
)


def test_run_length_is_known_for_the_benchmark_alone() -> None:
    assert tokens_to_target(GPT3_175B)[0] == (1_157_627_904, 1_459_617_792)
    shallow = dataclasses.replace(GPT3_175B, model=dataclasses.replace(GPT3_175B.model, num_layers=4))
    changed = dataclasses.replace(GPT3_175B, target_log_perplexity=2.5)
    large = dataclasses.replace(GPT3_175B, global_batch_size=12288)
    for benchmark in (shallow, changed, large):
        tokens, why = tokens_to_target(benchmark)
        assert tokens == ()
        assert why.startswith("no run length: ")


def test_without_published_runs_the_mean_of_reference_runs_lies_between_two_evaluations() -> None:
    """161,109 samples at batch 16 are 13.1 evaluations' worth."""
    config = RunConfig(LLAMA31_8B, SYSTEMS["cpu_p1"])
    assert evaluation_sequences(config)[0] == 1024
    first, last = (run_length(LLAMA31_8B, goal, 1.0, 10.0) for goal in tokens_to_target(LLAMA31_8B)[0])
    assert (first.evaluations, last.evaluations, last.steps) == (13, 14, 14 * 768)
    expected = expected_length(LLAMA31_8B, 1.0, 10.0)
    assert expected.steps == 10_070
    assert expected.seconds == pytest.approx(10_070 * (1 + 10 / 768))
    assert first.seconds < expected.seconds < last.seconds
    assert tokens_to_target(dataclasses.replace(LLAMA31_8B, global_batch_size=256))[0] == ()
