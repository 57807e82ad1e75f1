"""Time by arithmetic, its assumptions, and what is refused."""

import dataclasses
import json
from typing import Any

import pytest

from benchmark.__main__ import main
from benchmark.config.benchmarks import GPT3_175B, REHEARSAL
from benchmark.config.run_config import Benchmark, RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_run import AxisTraffic, DryRun, RankReport
from benchmark.planning.run_plan import RunPlan, format_run_plan, make_plan, tokens_to_target
from benchmark.planning.step_counts import StepCounts
from stage.errors import CheckFailed, InputError
from tests.benchmark.tiny import Inputs
from tests.support import command

GB2048 = dataclasses.replace(GPT3_175B, global_batch_size=2048)
RANK = RankReport(
    "every rank", 0, 96, 1, 2, 3, 4, 5, 15 * 2**30, 1, 1.0, [AxisTraffic("all-gather", "shard", 7, 2**30)]
)
EXAMINED = DryRun([RANK], 8, None, StepCounts(96, []))


def config(benchmark: Benchmark = GB2048, system: str = "dgxh100_n64", **topology: Any) -> RunConfig:
    return RunConfig(benchmark=benchmark, system=dataclasses.replace(SYSTEMS[system], **topology))


def plan(run: RunConfig, **speed: float) -> RunPlan:
    return make_plan(run, EXAMINED, **speed)


@pytest.mark.parametrize(
    ("nodes", "minutes"),
    [(8, (1053, 877, 784, 709)), (32, (263, 219, 196, 177)), (64, (132, 110, 98, 89)), (128, (66, 55, 49, 44))],
)
def test_minutes_are_those_of_the_fact_sheet(nodes: int, minutes: tuple[int, ...]) -> None:
    """The table below the published results, which is for 24 evaluations (docs/facts/peers.md 1.1)."""
    for mfu, expected in zip((0.35, 0.42, 0.47, 0.52), minutes, strict=True):
        estimate = plan(config(nodes=nodes), mfu=mfu).estimate
        assert estimate is not None
        assert estimate.evaluation_s is not None
        shortest, longest = estimate.lengths
        assert (shortest.evaluations, longest.evaluations) == (23, 29)
        assert (shortest.tokens, longest.tokens) == (1_157_627_904, 1_459_617_792)
        block_s = 12 * estimate.step_s + estimate.evaluation_s
        assert 24 * block_s / 60 == pytest.approx(expected, abs=0.6)
        assert shortest.seconds == pytest.approx(23 * block_s)
        assert estimate.evaluation_s / (12 * estimate.step_s) == pytest.approx(0.077, abs=0.0005)


def test_the_default_is_a_published_figure_and_says_so() -> None:
    made = plan(config())
    assert made.estimate is not None
    assert made.estimate.mfu == pytest.approx(0.47)
    assert made.estimate.step_s == pytest.approx(19.0, abs=0.05)
    assert made.estimate.tokens_per_s_per_device == pytest.approx(432, abs=0.5)
    assert made.assumptions[0].startswith("MFU 47.0% of 989.4 TFLOP/s, another stack's: Megatron-LM, BF16")
    text = format_run_plan(made, config())
    assert "step              19 s for 4.515e+18 FLOPs at 465 TFLOP/s per device" in text
    assert max(map(len, text.splitlines()[:-6])) <= 120
    assert f"{2**30 / 1e9 / made.estimate.step_s:.3f}" in text  # of the message, spread over the step
    assert "checkpoint" in text.splitlines()[-1]


@pytest.mark.parametrize(
    "run",
    [
        config(system="b200_n8"),
        config(system="cpu_p2"),
        dataclasses.replace(config(), precision="fp32"),
        config(REHEARSAL, accelerator="H100 SXM"),
    ],
)
def test_without_a_published_figure_there_is_no_time(run: RunConfig) -> None:
    made = plan(run)
    assert made.estimate is None
    assert "give --mfu or --tflops" in made.assumptions[0]
    assert "\nstep " not in format_run_plan(made, run)


def test_bubble() -> None:
    assert plan(config(pipeline_chunks=1)).bubble == 7 / 128
    assert plan(config(pipeline_chunks=2)).bubble == 7 / 256
    assert plan(config(pipeline_parallel=1)).bubble == 0


def test_run_length_is_known_for_the_benchmark_alone() -> None:
    assert tokens_to_target(GPT3_175B)[0] == (1_157_627_904, 1_459_617_792)
    assert tokens_to_target(REHEARSAL)[0] == (425_984, 458_752)
    shallow = dataclasses.replace(GPT3_175B, model=dataclasses.replace(GPT3_175B.model, num_layers=4))
    changed = dataclasses.replace(GPT3_175B, target_log_perplexity=2.5)
    large = dataclasses.replace(GPT3_175B, global_batch_size=12288)
    for benchmark in (shallow, changed, large):
        tokens, why = tokens_to_target(benchmark)
        assert tokens == ()
        assert why.startswith("no run length: ")
    whole = dataclasses.replace(REHEARSAL, target_log_perplexity=None, train_samples=64_000 + 40 * 16)
    estimate = plan(config(whole, "cpu_p2"), tflops=0.02).estimate
    assert estimate is not None
    (length,) = estimate.lengths
    assert (length.steps, length.evaluations, length.tokens) == (40, 2, 40 * 16 * 128)


def test_evaluations_cost_what_the_validation_set_given_has(inputs: Inputs) -> None:
    given = dataclasses.replace(config(REHEARSAL, "cpu_p2"), valid_data_path=inputs.validation)
    own, other = plan(config(REHEARSAL, "cpu_p2"), tflops=0.02).estimate, plan(given, tflops=0.02).estimate
    assert own is not None
    assert other is not None
    assert own.evaluation_s == pytest.approx(176 * 128 / 3 / own.tokens_per_s)
    assert own.evaluation_s is not None
    assert other.evaluation_s is not None
    assert 0 < other.evaluation_s < own.evaluation_s / 10


@pytest.mark.parametrize(
    ("speed", "complaint"),
    [
        ({"mfu": 47.0}, "--mfu 47: expected a fraction"),
        ({"mfu": float("nan")}, "--mfu nan: expected a fraction"),
        ({"tflops": 990.0}, "at most H100 SXM's peak of 989.4"),
        ({"tflops": 0.0}, "--tflops 0: expected more than 0"),
        ({"mfu": 0.4, "tflops": 400.0}, "expected one of them"),
    ],
)
def test_impossible_speeds_are_refused(speed: dict[str, float], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        plan(config(), **speed)


@pytest.mark.slow
def test_command() -> None:
    done = command("benchmark", "plan", "rehearsal", "--tflops", "0.02", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert [report["rank"] for report in made["dry_run"]["reports"]] == [0]
    assert made["dry_run"]["reports"][0]["peak_bytes"] > 1e6
    assert [length["evaluations"] for length in made["estimate"]["lengths"]] == [13, 14]


def test_a_run_that_does_not_fit_is_shown_and_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The complaint itself is tested with the dry run."""
    too_large = dataclasses.replace(EXAMINED, complaint="rank 0 needs more")
    monkeypatch.setattr("benchmark.planning.dry_run.dry_run", lambda _: too_large)
    with pytest.raises(CheckFailed, match="rank 0 needs more"):
        main(["plan", "gpt3_175b"])
    assert "20% of H100" in capsys.readouterr().out


def test_bad_options_are_refused_before_the_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"--mfu 0\.4: system cpu_p2 has no accelerator"):
        main(["plan", "rehearsal", "--mfu", "0.4"])
    with pytest.raises(InputError, match="--mfu"):
        main(["plan", "gpt3_175b", "--mfu", "half"])
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    assert "Example: python -m benchmark plan" in capsys.readouterr().out
