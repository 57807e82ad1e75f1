"""When a run will meet its target."""

import dataclasses
import json
import math

import pytest

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import GPT3_175B, REHEARSAL, REHEARSAL_LLAMA
from benchmark.config.reference_curves import REFERENCE_CURVES
from benchmark.judging.results.frames import published_frame
from benchmark.run_record.status.target_forecast import forecast
from tests.support import REPOSITORY

INTERVAL = 24576 * 2048
"""Tokens between evaluations where the global batch size divides 24,576."""


@pytest.mark.parametrize(("size", "evaluations"), [(1536, 24), (2048, 24), (3072, 25), (4096, 26), (8192, 32)])
def test_before_any_evaluation_it_is_what_runs_of_that_size_took(size: int, evaluations: int) -> None:
    found = forecast(dataclasses.replace(GPT3_175B, global_batch_size=size), [], 0)
    assert found is not None
    assert found.basis == "reference curves"
    assert found.tokens == evaluations * INTERVAL
    assert found.low < found.tokens < found.high


def test_sizes_between_those_of_the_curves_and_beyond_them() -> None:
    between = forecast(dataclasses.replace(GPT3_175B, global_batch_size=2688), [], 0)
    assert between is not None
    assert between.low <= 22 * 10 * 2688 * 2048 < between.high  # what all published runs of that size took
    assert forecast(dataclasses.replace(GPT3_175B, global_batch_size=1024), [], 0) is not None
    assert forecast(dataclasses.replace(GPT3_175B, global_batch_size=16384), [], 0) is None


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_published_runs_end_within_the_interval(share: float) -> None:
    """One run of each system (docs/facts/mlperf_review.md 6.5)."""
    runs = published_frame()
    runs = runs[runs["submission_benchmark"] == "gpt3"].drop_duplicates(["round", "package", "system_folder"])
    published = [
        (int(size), [float(value) for value in values.split()])
        for size, values in zip(runs["global_batch_size"], runs["evaluation_values"], strict=True)
    ]
    missed, inside = [], 0
    for size, values in published:
        benchmark = dataclasses.replace(GPT3_175B, global_batch_size=size)
        every = benchmark.eval_interval * size * 2048
        seen = [(number * every, value) for number, value in enumerate(values, 1)][: int(share * len(values))]
        found = forecast(benchmark, seen, seen[-1][0])
        assert found is not None
        missed.append(abs(found.tokens // every - len(values)))
        inside += found.low <= len(values) * every <= found.high
    assert max(missed) <= 2
    assert sum(missed) <= 0.35 * len(published)
    assert inside >= 0.9 * len(published)


def test_a_run_that_stands_above_its_curve_takes_longer_and_a_spike_does_not_matter() -> None:
    curve = next(one for one in REFERENCE_CURVES["gpt3_175b"] if one.global_batch_size == 2048).log_perplexities
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=2048)

    def evaluations(shift: float, spike: float = 0.0) -> list[tuple[int, float]]:
        seen = [((number + 1) * INTERVAL, curve[number] + shift) for number in range(12)]
        return [*seen[:-1], (seen[-1][0], seen[-1][1] + spike)]

    found = [forecast(benchmark, evaluations(*shifts), 12 * INTERVAL) for shifts in ((0,), (0.003,), (-0.003,), (0, 1))]
    at = [one.tokens // INTERVAL for one in found if one is not None]
    assert at[1] > at[0] > at[2]
    assert at[3] == at[0]


def test_an_evaluation_that_is_due_now_is_over() -> None:
    late = forecast(REHEARSAL, [(32768 * number, 2.45) for number in range(1, 20)], 19 * 32768)
    assert late is not None
    assert late.tokens >= 20 * 32768
    assert late.low == 20 * 32768


def test_without_reference_runs_the_evaluations_are_continued() -> None:
    other = dataclasses.replace(REHEARSAL, name="other")
    every = 32768
    falling = [(every * number, 6.0 - 1.0 * (number.bit_length() - 1)) for number in (1, 2, 4)]  # 1 per doubling
    assert forecast(other, falling[:2], 2 * every) is None
    found = forecast(other, falling, 4 * every)
    assert found is not None
    assert found.basis == "own evaluations"
    assert found.tokens == 12 * every  # 2 ** (6 - 2.44) = 11.8 evaluations
    assert found.low == 8 * every
    assert found.high == 16 * every
    assert forecast(other, [(every, 6.0), (2 * every, 6.0), (3 * every, 6.1)], 3 * every) is None
    assert forecast(other, [(every, 6.0), (2 * every, 5.99), (3 * every, 5.98)], 3 * every) is None
    assert forecast(other, [*falling, (5 * every, math.nan)], 5 * every) is not None


def test_no_target_no_forecast() -> None:
    assert forecast(dataclasses.replace(REHEARSAL, target_log_perplexity=None), [(32768, 5.0)], 32768) is None


def test_curves_end_at_the_target_of_their_benchmark() -> None:
    for benchmark in (GPT3_175B, REHEARSAL, REHEARSAL_LLAMA):
        assert benchmark.target_log_perplexity is not None
        for curve in REFERENCE_CURVES[benchmark.name]:
            assert curve.log_perplexities[-1] <= benchmark.target_log_perplexity < curve.log_perplexities[-2]


@pytest.mark.parametrize(("benchmark", "unit"), [(REHEARSAL, 1), (REHEARSAL_LLAMA, 128)], ids=["gpt3", "llama31"])
def test_rehearsals_take_what_their_reference_points_say(benchmark: Benchmark, unit: int) -> None:
    points = json.loads(
        (REPOSITORY / "benchmark" / "judging" / "results" / f"{benchmark.name}_points.json").read_text()
    )
    taken = points[f"{benchmark.name}_ref_16"]["Epochs to converge"]
    found = forecast(benchmark, [], 0)
    assert found is not None
    assert all(found.low <= one * unit <= found.high for one in taken)
