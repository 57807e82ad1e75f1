"""Learning rate, cadence and counts of every step."""

import dataclasses
import json
import math
from fractions import Fraction

import pytest

from benchmark.__main__ import main
from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B, REHEARSAL, REHEARSAL_LLAMA
from benchmark.config.schedule import learning_rate, scheduled_steps
from tests.support import golden


@pytest.mark.parametrize("name", ["lr_points.json", "lr_gbs1536.json"])
def test_learning_rate_is_the_references_to_the_last_bit(name: str) -> None:
    content = golden(name)
    rows = content if isinstance(content, list) else content["rows"]
    assert len(rows) > 10
    for row in rows:
        assert learning_rate(row["num_steps"], GPT3_175B.optimizer, 1536).hex() == row["lr_hex"], row


def test_learning_rate_of_the_checkpoint() -> None:
    """What the 4,000 steps ended with, as stored in common.pt, and the benchmark's first values
    (docs/facts/reference.md e)."""
    original = dataclasses.replace(GPT3_175B.optimizer, lr=6e-5, min_lr=6e-6)
    assert learning_rate(6_144_000, original, 1536) == 5.984178321979609e-05
    assert learning_rate(6_144_000, GPT3_175B.optimizer, 1536) == 1.9947261073265366e-05
    larger = dataclasses.replace(GPT3_175B.optimizer, lr=3e-5, min_lr=3e-6)
    assert learning_rate(6_144_000, larger, 1536) == 2.9920891609898046e-05


@pytest.mark.parametrize(
    ("size", "start", "interval"),
    [(1536, 4000, 16), (2304, 2666, 11), (8192, 750, 3)],
)
def test_evaluations_are_counted_from_the_start(size: int, start: int, interval: int) -> None:
    steps = list(scheduled_steps(dataclasses.replace(GPT3_175B, global_batch_size=size)))
    assert steps[0].iteration == start + 1
    assert [step.evaluates for step in steps[: 2 * interval]] == ([False] * (interval - 1) + [True]) * 2
    assert steps[interval - 1].trained_tokens == interval * size * 2048
    assert steps[0].consumed_samples == 6_144_000 + size
    assert steps[-1].iteration == 20_000_000 // size


@pytest.mark.parametrize(
    ("size", "warm_up", "decay_steps", "interval"),  # as published: docs/facts/llama31_8b.md 9.3
    [(16, 256, 1_199_984, 768), (36, 3456, 1_199_904, 342), (64, 12288, 1_199_808, 192), (96, 16348, 1_199_829, 128)],
)
def test_llamas_cosine_ends_at_the_same_step_in_every_batch_size(
    size: int, warm_up: int, decay_steps: int, interval: int
) -> None:
    rates = dataclasses.replace(LLAMA31_8B.optimizer, lr_warmup_samples=warm_up)
    benchmark = dataclasses.replace(LLAMA31_8B, global_batch_size=size, optimizer=rates)
    rates = benchmark.optimizer
    assert benchmark.eval_interval == interval
    assert (rates.lr_decay_samples - warm_up) // size == decay_steps
    assert learning_rate(1_200_000 * size, rates, size) == rates.min_lr
    half_way = (rates.lr_decay_samples + warm_up) // 2
    assert learning_rate(half_way, rates, size) == pytest.approx((rates.lr + rates.min_lr) / 2, rel=1e-5)


@pytest.mark.parametrize("size", [16, 32, 64, 96, 128])
def test_llamas_rates_are_nemos(size: int) -> None:
    """The formula of docs/facts/llama31_8b.md 2, in exact fractions but for the cosine, at each reference point."""
    benchmark = LLAMA31_8B.at_batch_size(size)
    peak, final = benchmark.optimizer.lr, benchmark.optimizer.lr / 10
    warmup_steps = -(-benchmark.optimizer.lr_warmup_samples // size)
    for number in (*range(1, 501), 1_199_999, 1_200_000):  # steps, from 1
        if number <= warmup_steps + 1:
            expected = float(Fraction(number, warmup_steps + 1)) * peak
        else:
            angle = math.pi * float(Fraction(number - 1 - warmup_steps, 1_200_000 - warmup_steps))
            expected = final + (peak - final) / 2 * (1 + math.cos(angle))
        rate = learning_rate((number - 1) * size, benchmark.optimizer, size)
        assert rate == pytest.approx(expected, abs=1e-12 * peak)
    first = next(scheduled_steps(benchmark))
    assert first.learning_rate == pytest.approx(peak / (warmup_steps + 1), rel=1e-12)


def test_rehearsals_evaluate_as_often_as_their_benchmarks() -> None:
    assert REHEARSAL.eval_interval == GPT3_175B.eval_interval == 16
    assert REHEARSAL_LLAMA.eval_interval_samples == LLAMA31_8B.eval_interval_samples // 96


def test_command_prints_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "gpt3_175b", "--global-batch-size", "2304", "--json"]) in (0, None)
    content = json.loads(capsys.readouterr().out)
    expected = scheduled_steps(dataclasses.replace(GPT3_175B, global_batch_size=2304))
    assert content["steps"] == [dataclasses.asdict(step) for step in expected]
    assert (content["eval_interval"], content["start_samples"]) == (11, 6_144_000)
    main(["schedule", "rehearsal"])
    table = capsys.readouterr().out.splitlines()
    assert table[16].split()[0] == "4016"
    assert table[16].endswith("evaluates")
