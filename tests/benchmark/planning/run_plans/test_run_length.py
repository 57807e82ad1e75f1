"""How many tokens, steps and evaluations a run has."""

import dataclasses

from benchmark.config.benchmarks import GPT3_175B
from benchmark.planning.run_plans.run_length import tokens_to_target


def test_run_length_is_known_for_the_benchmark_alone() -> None:
    assert tokens_to_target(GPT3_175B)[0] == (1_157_627_904, 1_459_617_792)
    shallow = dataclasses.replace(GPT3_175B, model=dataclasses.replace(GPT3_175B.model, num_layers=4))
    changed = dataclasses.replace(GPT3_175B, target_log_perplexity=2.5)
    large = dataclasses.replace(GPT3_175B, global_batch_size=12288)
    for benchmark in (shallow, changed, large):
        tokens, why = tokens_to_target(benchmark)
        assert tokens == ()
        assert why.startswith("no run length: ")
