"""Plans: simulated or given speed, intervals, what is refused, what is printed."""

import dataclasses
import json
from typing import Any

import pytest

from benchmark.__main__ import main
from benchmark.config.benchmarks import GPT3_175B, REHEARSAL
from benchmark.config.run_config import Benchmark, RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.dry_run import AxisTraffic, DryRun, RankReport
from benchmark.planning.dry_runs.step_counts import StepCounts
from benchmark.planning.run_plans.plan_options import PlanOptions
from benchmark.planning.run_plans.plan_text import PART_NAMES, format_run_plan
from benchmark.planning.run_plans.run_plan import RunPlan, make_plan
from benchmark.planning.step_model.simulated_step import StepParts
from stage.errors import CheckFailed, InputError
from tests.benchmark.tiny import Inputs
from tests.support import command

GB2048 = dataclasses.replace(GPT3_175B, global_batch_size=2048)
RANK = RankReport(
    "every rank", 0, 96, 1, 2, 3, 4, 5, 15 * 2**30, 1, 1.0, [AxisTraffic("all-gather", "shard", 7, 2**30)]
)
EXAMINED = DryRun([RANK], 8, None, StepCounts(96, []))


def config(benchmark: Benchmark = GB2048, system: str = "dgxh100_n64", **topology: Any) -> RunConfig:
    return RunConfig(
        benchmark=benchmark, system=dataclasses.replace(SYSTEMS[system], **{"micro_batch_size": 1, **topology})
    )


def plan(run: RunConfig, **options: Any) -> RunPlan:
    return make_plan(run, EXAMINED, PlanOptions(**options))


def step_s(made: RunPlan) -> float:
    assert made.step_s is not None
    return made.step_s


@pytest.mark.parametrize(
    ("nodes", "minutes"),
    [(8, (1053, 877, 784, 709)), (32, (263, 219, 196, 177)), (64, (132, 110, 98, 89)), (128, (66, 55, 49, 44))],
)
def test_minutes_are_those_of_the_fact_sheet(nodes: int, minutes: tuple[int, ...]) -> None:
    """The table below the published results, which is for 24 evaluations (docs/facts/peers.md 1.1)."""
    for mfu, expected in zip((0.35, 0.42, 0.47, 0.52), minutes, strict=True):
        estimate = plan(config(nodes=nodes), tflops=989.4 * mfu).estimate
        assert estimate is not None
        assert estimate.evaluation_s is not None
        shortest, longest = estimate.lengths
        assert (shortest.evaluations, longest.evaluations) == (23, 29)
        assert (shortest.tokens, longest.tokens) == (1_157_627_904, 1_459_617_792)
        block_s = 12 * estimate.step_s + estimate.evaluation_s
        assert 24 * block_s / 60 == pytest.approx(expected, abs=0.6)
        assert shortest.seconds == pytest.approx(23 * block_s)
        assert estimate.evaluation_s / (12 * estimate.step_s) == pytest.approx(0.077, abs=0.0005)


def test_the_step_is_simulated_in_parts_with_intervals() -> None:
    made = plan(config())
    assert made.parts is not None
    assert made.step_s == pytest.approx(made.parts.total)
    assert made.bubble_s == made.parts.bubble
    assert made.mfu == pytest.approx(made.step_flops / (step_s(made) * 512 * 989.4e12))
    for name in ("step_s", "mfu", "tflops_per_device", "bubble_s", "evaluation_s", "run_s"):
        low, high = made.intervals[name]
        assert low < getattr(made, name) < high, name
    assert [run.global_batch_size for run in made.reference_runs] == [1536, 2048, 3072, 4096, 6144, 8192]
    at_2048 = made.reference_runs[1]
    assert at_2048.run_s == pytest.approx(made.run_s)
    assert made.costs is not None
    assert made.costs.checkpoint.bytes == pytest.approx(12 * 174.6e9, rel=0.01)
    assert json.loads(json.dumps(dataclasses.asdict(made)))["step_s"] == made.step_s


def test_a_given_speed_replaces_the_simulation() -> None:
    made = plan(config(), tflops=465.018)
    assert made.parts is None
    assert made.step_s == pytest.approx(19.0, abs=0.05)
    assert made.intervals["step_s"] == (made.step_s, made.step_s)
    assert made.assumptions[0] == "465.018 TFLOP/s per device, as given"


def test_the_text_has_the_headline_first() -> None:
    """What the machine would score, then the published results on as many of its devices; 30 lines unless asked."""
    made = plan(config())
    lines = format_run_plan(made, config(), verbose=False).splitlines()
    assert lines[3].startswith("would score       ") and " min (" in lines[3]
    assert lines[4].startswith("published         49.80 min (NVIDIA, 4.1), ")
    assert len(lines) <= 30 and max(map(len, lines)) <= 120
    assert sum(line.startswith("  stacks.ours.") for line in lines) == 3
    verbose = format_run_plan(made, config(), verbose=True)
    for told in ("parts of the step", *PART_NAMES.values(), "run at batch      4096", "checkpoint", "goodput"):
        assert told in verbose or told == "waiting for the host"
    assert f"{2**30 / 1e9 / step_s(made):.3f}" in verbose  # of the message, spread over the step
    assert list(PART_NAMES) == [field.name for field in dataclasses.fields(StepParts)]


def test_another_model_has_no_run() -> None:
    """Neither published results nor reference runs tell anything of it."""
    shallow = dataclasses.replace(GB2048, model=dataclasses.replace(GB2048.model, num_layers=48))
    made = plan(config(shallow))
    assert (made.run_s, made.reference_runs) == (None, ())
    assert made.step_s is not None


def test_other_stacks_and_machines() -> None:
    ours, nemo = plan(config(pipeline_chunks=6)), make_plan(config(pipeline_chunks=6), None, PlanOptions(stack="nemo"))
    assert step_s(nemo) != step_s(ours)
    assert nemo.dry_run is None
    assert nemo.memory_fits
    assert nemo.memory_bytes["peak"] == pytest.approx(sum(nemo.memory_bytes.values()) - nemo.memory_bytes["peak"])
    fp8 = make_plan(config(pipeline_chunks=6), None, PlanOptions(stack="nemo", precision="fp8"))
    assert step_s(fp8) < 0.8 * step_s(nemo)
    wide = make_plan(config(pipeline_chunks=6), None, PlanOptions(stack="nemo", what_if=("matmul=2x",)))
    assert step_s(wide) < 0.7 * step_s(nemo)
    alone = make_plan(
        config(pipeline_parallel=1, recompute="none", micro_batch_size=4), None, PlanOptions(stack="nemo")
    )
    assert alone.memory_fits is False
    assert "of H100 SXM's 80, of which 10% stay free" in str(alone.complaint)
    b200 = plan(config(system="b200_n8"))
    assert b200.intervals["step_s"][1] > 1.1 * step_s(b200)


@pytest.mark.parametrize(
    "run",
    [config(system="cpu_p2"), dataclasses.replace(config(), precision="fp32")],
)
def test_without_constants_there_is_no_time(run: RunConfig) -> None:
    made = plan(run)
    assert made.estimate is None
    assert made.step_s is None
    assert "no time estimated" in made.assumptions[0]
    assert "\nstep " not in format_run_plan(made, run, verbose=True)


def test_bubble_of_the_textbook() -> None:
    assert plan(config(pipeline_chunks=1)).bubble == 7 / 128
    assert plan(config(pipeline_chunks=2)).bubble == 7 / 256
    assert plan(config(pipeline_parallel=1)).bubble == 0


def test_a_run_to_the_last_step() -> None:
    whole = dataclasses.replace(REHEARSAL, target_log_perplexity=None, train_samples=64_000 + 40 * 16)
    estimate = plan(config(whole, "cpu_p2"), tflops=0.02).estimate
    assert estimate is not None
    (length,) = estimate.lengths
    assert (length.steps, length.evaluations, length.tokens) == (40, 2, 40 * 16 * 128)


def test_evaluations_cost_what_the_validation_set_given_has(inputs: Inputs) -> None:
    given = config(REHEARSAL, "cpu_p2").changed(valid_data_path=inputs.validation)
    own, other = plan(config(REHEARSAL, "cpu_p2"), tflops=0.02).estimate, plan(given, tflops=0.02).estimate
    assert own is not None
    assert other is not None
    assert own.evaluation_s == pytest.approx(176 * 128 / 3 / own.tokens_per_s)
    assert own.evaluation_s is not None
    assert other.evaluation_s is not None
    assert 0 < other.evaluation_s < own.evaluation_s / 10


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
    monkeypatch.setattr("benchmark.planning.run_plans.plan_command.dry_run", lambda _: too_large)
    with pytest.raises(CheckFailed, match="rank 0 needs more"):
        main(["plan", "gpt3_175b"])
    assert "20% of H100" in capsys.readouterr().out


def test_bad_options_are_refused_before_the_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="--tflops 0: expected more than 0"):
        main(["plan", "rehearsal", "--tflops", "0"])
    assert main(["plan", "--help"]) == 0
    assert "Example: python -m benchmark plan" in capsys.readouterr().out
