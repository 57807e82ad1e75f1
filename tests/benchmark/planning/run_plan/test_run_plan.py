"""Plans: the step, intervals, the length of a run, failures, what is printed."""

import dataclasses
import json
import math
from functools import cache
from typing import Any

import pytest

from benchmark.__main__ import main
from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B
from benchmark.config.run_sections import DataOptions
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_run.dry_run import MEMORY_PARTS, DryRun
from benchmark.planning.dry_run.rank_report import AxisTraffic, RankReport, WorkCounts
from benchmark.planning.run_plan.calibration import planned_rates
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions
from benchmark.planning.run_plan.plan_text import PART_NAMES, format_run_plan
from benchmark.planning.run_plan.run_costs import FailingRun, run_costs
from benchmark.planning.run_plan.run_length import (
    evaluation_sequences,
    expected_length,
    run_length,
    tokens_to_target,
)
from benchmark.planning.run_plan.run_plan import RunPlan, make_plan
from benchmark.planning.step_model.step_time import StepTime
from foundation.errors import CheckFailed, InputError

GB2048 = dataclasses.replace(GPT3_175B, global_batch_size=2048)
NOTHING = WorkCounts([], [], [], [])
RANK = RankReport(
    kind="every rank",
    rank=0,
    layers=96,
    counted=(2, 3),
    **dict.fromkeys((f"{part}_bytes" for part in (*MEMORY_PARTS, "after_step", "after_evaluation")), 15 * 2**30),
    peak_bytes_per_micro_batch=0,
    after_step_bytes_per_micro_batch=0,
    flops_per_micro_batch=1,
    formula_flops_per_micro_batch=1.0,
    traffic=[AxisTraffic("all-gather", "shard", 7, 2**30)],
    per_micro_batch=NOTHING,
    per_step=NOTHING,
    host_waits=[],
)
EXAMINED = DryRun([RANK], 8, None)
NEMO = PlanOptions(stack="nemo")


def config(benchmark: Benchmark = GB2048, system: str = "dgxh100_n64", **topology: Any) -> PlannedRun:
    return PlannedRun(benchmark, dataclasses.replace(SYSTEMS[system], **{"micro_batch_size": 1, **topology}))


def flat(benchmark: Benchmark = GB2048, system: str = "dgxh100_n64") -> PlannedRun:
    """Without a pipeline, whose passes take long to simulate."""
    return config(benchmark, system, pipeline_parallel=1)


def plan(run: PlannedRun, examined: DryRun | None = EXAMINED, options: PlanOptions | None = None) -> RunPlan:
    chosen = PlanOptions() if options is None else options
    return make_plan(run, chosen, planned_rates(run.system, chosen), examined)


def text_of(made: RunPlan, run: PlannedRun, *, verbose: bool = False) -> str:
    return format_run_plan(made, run.benchmark, run.system, ["49.80 min (NVIDIA, 4.1)"], verbose=verbose)


@cache
def usual_plan() -> RunPlan:
    return plan(config())


def step_s(made: RunPlan) -> float:
    assert made.step_s is not None
    return made.step_s


def test_a_run_is_blocks_of_steps_and_an_evaluation() -> None:
    made = usual_plan()
    assert made.evaluation_s is not None
    shortest, longest = made.lengths
    assert (shortest.evaluations, longest.evaluations) == (23, 29)
    assert (shortest.tokens, longest.tokens) == (1_157_627_904, 1_459_617_792)
    assert shortest.seconds == pytest.approx(23 * (12 * step_s(made) + made.evaluation_s))
    short = dataclasses.replace(GB2048, target_log_perplexity=None, train_samples=GB2048.start_samples + 40 * 2048)
    (length,) = plan(flat(short)).lengths
    assert (length.steps, length.evaluations) == (40, 40 // short.eval_interval)


def test_the_step_is_simulated_in_parts_with_intervals() -> None:
    made = usual_plan()
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
    assert made.bubble == 7 / (128 * 6)  # (p - 1) / (m v)


def test_the_text_has_the_headline_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine would score, then the published results on as many of its devices; 30 lines unless asked."""
    monkeypatch.setenv("COLUMNS", "100")
    made = usual_plan()
    lines = text_of(made, config(), verbose=False).splitlines()
    assert lines[0].startswith("would score       ") and " min (" in lines[0]
    assert lines[1] == "published         49.80 min (NVIDIA, 4.1)"
    assert len(lines) <= 30 and max(map(len, lines)) <= 100
    assert sum(line.startswith("  stacks.ours.") for line in lines) == 3
    verbose = text_of(made, config(), verbose=True)
    for told in ("parts of the step", *PART_NAMES.values(), "run at batch      4096", "checkpoint", "goodput"):
        assert told in verbose or told == "waiting for the host"
    assert "rank 0, every rank (96 layers; 2 and 3 micro-batches were run)" in verbose
    assert list(PART_NAMES) == [field.name for field in dataclasses.fields(StepTime)]


def test_another_model_has_no_run() -> None:
    """Neither published results nor reference runs tell anything of it."""
    shallow = flat(dataclasses.replace(GB2048, model=dataclasses.replace(GB2048.model, num_layers=48)))
    made = plan(shallow)
    assert (made.run_s, made.reference_runs) == (None, ())
    assert made.step_s is not None
    text = text_of(made, shallow, verbose=False)
    assert text.startswith("not the benchmark: ")


def test_other_stacks_and_machines() -> None:
    nemo = plan(flat(), None, NEMO)
    assert step_s(nemo) != step_s(plan(flat()))
    assert nemo.dry_run is None
    assert nemo.memory_bytes["peak"] == pytest.approx(sum(nemo.memory_bytes.values()) - nemo.memory_bytes["peak"])
    assert nemo.memory_fits is False
    assert "of H100 SXM's 80, of which 10% stay free" in str(nemo.complaint)
    assert plan(config(pipeline_chunks=1), None, NEMO).memory_fits
    fp8 = plan(dataclasses.replace(flat(), precision="fp8"), None, NEMO)
    assert step_s(fp8) < 0.8 * step_s(nemo)
    wide = plan(flat(), None, PlanOptions(stack="nemo", what_if=("matmul=2x",)))
    assert step_s(wide) < 0.7 * step_s(nemo)
    b200 = plan(flat(system="b200_n8"))
    assert b200.intervals["step_s"][1] > 1.1 * step_s(b200)


def test_a_system_without_compiled_kernels_has_the_step_of_its_operators() -> None:
    switched_off = plan(config(pipeline_parallel=1, compiled_kernels=False))
    imagined = plan(flat(), options=PlanOptions(what_if=("compiled-kernels=off",)))
    assert step_s(switched_off) == step_s(imagined) > step_s(plan(flat()))


@pytest.mark.parametrize("run", [config(system="cpu_p2"), dataclasses.replace(config(), precision="fp32")])
def test_without_constants_there_is_no_time(run: PlannedRun) -> None:
    made = plan(run)
    assert made.step_s is None
    assert "no time estimated" in made.assumptions[0]
    assert "\nstep " not in text_of(made, run, verbose=True)


def test_a_run_that_does_not_fit_is_shown_and_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The complaint itself is tested with the dry run."""
    too_large = dataclasses.replace(EXAMINED, complaint="rank 0 needs more")
    monkeypatch.setattr("benchmark.planning.run_plan.plan_command.dry_run", lambda *_: too_large)
    with pytest.raises(CheckFailed, match="rank 0 needs more"):
        main(["plan", "llama31_8b"])
    assert "20% of H100" in capsys.readouterr().out


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
    assert evaluation_sequences(LLAMA31_8B, DataOptions())[0] == 1024
    first, last = (run_length(LLAMA31_8B, goal, 1.0, 10.0) for goal in tokens_to_target(LLAMA31_8B)[0])
    assert (first.evaluations, last.evaluations, last.steps) == (13, 14, 14 * 768)
    expected = expected_length(LLAMA31_8B, 1.0, 10.0)
    assert expected.steps == 10_070
    assert expected.seconds == pytest.approx(10_070 * (1 + 10 / 768))
    assert first.seconds < expected.seconds < last.seconds
    assert tokens_to_target(dataclasses.replace(LLAMA31_8B, global_batch_size=256))[0] == ()


def test_failures_lengthen_a_run_by_no_less_than_their_share() -> None:
    known: dict[str, Any] = {"step_s": 18.0, "run_s": 6000.0, "run_interval_s": (5000.0, 7000.0)}
    costs = run_costs(GB2048, config().system, None, **known)
    assert costs.with_failures_s == pytest.approx(6000 / costs.goodput)
    assert costs.with_failures_s is not None and costs.with_failures_interval_s is not None
    low, high = costs.with_failures_interval_s
    assert 5000 <= low < costs.with_failures_s < high
    assert low < 5100  # most runs on 512 devices see none of published failures
    assert high > 7000 / costs.goodput + 370  # and one in twenty sees one or more beyond the mean
    whole = run_costs(GB2048, config(device_mtbf_hours=math.inf).system, None, **known)
    assert whole.with_failures_interval_s is not None
    assert whole.with_failures_interval_s[1] < 7000 * 1.02  # pauses alone
    none = run_costs(GB2048, config().system, None, step_s=18.0)
    assert (none.with_failures_s, none.with_failures_interval_s) == (None, None)
    with pytest.raises(InputError, match=r"--device-mtbf-hours 0\.0001: with a failure every 0\.000703 s on 512"):
        run_costs(GB2048, config(device_mtbf_hours=1e-4).system, None, **known)
    never_at_worst = run_costs(GB2048, config(device_mtbf_hours=0.14).system, None, **known)
    assert never_at_worst.with_failures_s is not None and never_at_worst.with_failures_interval_s is None


def test_where_failures_are_rare_each_costs_its_restart_and_half_a_segment() -> None:
    run = FailingRun(step_s=20.0, mtbf_s=1e6, save_steps=30, pause_s=15.0, restart_s=420.0)
    productive = 600 / 615
    assert run.goodput == pytest.approx(productive * (1 - (420 + 615 / 2) / 1e6), rel=1e-6)
    assert run.goodput > dataclasses.replace(run, restart_s=900.0).goodput
    assert dataclasses.replace(run, mtbf_s=0.5).goodput == 0


def test_more_devices_fail_more_often_and_start_later() -> None:
    few, many = (run_costs(GB2048, config(nodes=nodes).system, None, step_s=10.0) for nodes in (64, 1024))
    assert many.goodput < few.goodput < 1
    assert many.init_s == pytest.approx(2 * few.init_s)
    assert 170 <= few.init_s <= 297  # published at 512 devices (docs/facts/peers.md 1.1)
    assert few.checkpoint.pause_interval_s[0] < few.checkpoint.pause_s < few.checkpoint.pause_interval_s[1]
    between_s = few.checkpoint.every_s + few.checkpoint.pause_s
    assert few.checkpoint.share == few.checkpoint.pause_s / between_s < 0.05
