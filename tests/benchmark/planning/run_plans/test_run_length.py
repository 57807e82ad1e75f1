"""How many tokens, steps and evaluations a run has."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plans.run_length import run_length, tokens_to_target, validation_tokens


def test_run_length_is_known_for_the_benchmark_alone() -> None:
    assert tokens_to_target(GPT3_175B)[0] == (1_157_627_904, 1_459_617_792)
    shallow = dataclasses.replace(GPT3_175B, model=dataclasses.replace(GPT3_175B.model, num_layers=4))
    changed = dataclasses.replace(GPT3_175B, target_log_perplexity=2.5)
    large = dataclasses.replace(GPT3_175B, global_batch_size=12288)
    for benchmark in (shallow, changed, large):
        tokens, why = tokens_to_target(benchmark)
        assert tokens == ()
        assert why.startswith("no run length: ")


def test_a_run_ends_at_an_evaluation() -> None:
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=2048)
    config = RunConfig(benchmark=benchmark, system=SYSTEMS["dgxh100_n64"])
    length = run_length(config, 280 * config.tokens_per_step, 10.0, 5.0)
    assert (length.steps, length.evaluations) == (288, 24)
    assert length.seconds == 288 * 10 + 24 * 5
    assert length.evaluation_share == pytest.approx(120 / 3000)
    assert validation_tokens(config)[0] == 11_590_004
