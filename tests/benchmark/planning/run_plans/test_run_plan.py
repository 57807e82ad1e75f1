"""Plans: the step, intervals, what is printed."""

import dataclasses
import json
from typing import Any

import pytest

from benchmark.__main__ import main
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import Benchmark
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.dry_run import MEMORY_PARTS, DryRun
from benchmark.planning.dry_runs.rank_report import AxisTraffic, RankReport, WorkCounts
from benchmark.planning.run_plans.plan_options import PlannedRun, PlanOptions
from benchmark.planning.run_plans.plan_text import PART_NAMES, format_run_plan
from benchmark.planning.run_plans.run_plan import RunPlan, make_plan
from benchmark.planning.step_model.simulated_step import StepParts
from stage.errors import CheckFailed

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


def config(benchmark: Benchmark = GB2048, system: str = "dgxh100_n64", **topology: Any) -> PlannedRun:
    return PlannedRun(
        benchmark=benchmark, system=dataclasses.replace(SYSTEMS[system], **{"micro_batch_size": 1, **topology})
    )


def plan(run: PlannedRun, **options: Any) -> RunPlan:
    return make_plan(run, EXAMINED, PlanOptions(**options))


def step_s(made: RunPlan) -> float:
    assert made.step_s is not None
    return made.step_s


def test_a_run_is_blocks_of_steps_and_an_evaluation() -> None:
    made = plan(config())
    assert made.evaluation_s is not None
    shortest, longest = made.lengths
    assert (shortest.evaluations, longest.evaluations) == (23, 29)
    assert (shortest.tokens, longest.tokens) == (1_157_627_904, 1_459_617_792)
    assert shortest.seconds == pytest.approx(23 * (12 * step_s(made) + made.evaluation_s))


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


def test_the_text_has_the_headline_first() -> None:
    """What the machine would score, then the published results on as many of its devices; 30 lines unless asked."""
    made = plan(config())
    lines = format_run_plan(made, config(), verbose=False).splitlines()
    assert lines[0].startswith("would score       ") and " min (" in lines[0]
    assert lines[1].startswith("published         49.80 min (NVIDIA, 4.1), ")
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
    text = format_run_plan(made, config(shallow), verbose=False)
    assert text.startswith("not the benchmark: ") and "published" not in text


def test_other_stacks_and_machines() -> None:
    ours, nemo = plan(config(pipeline_chunks=6)), make_plan(config(pipeline_chunks=6), None, PlanOptions(stack="nemo"))
    assert step_s(nemo) != step_s(ours)
    assert nemo.dry_run is None
    assert nemo.memory_fits
    assert nemo.memory_bytes["peak"] == pytest.approx(sum(nemo.memory_bytes.values()) - nemo.memory_bytes["peak"])
    fp8 = make_plan(dataclasses.replace(config(pipeline_chunks=6), precision="fp8"), None, PlanOptions(stack="nemo"))
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
def test_without_constants_there_is_no_time(run: PlannedRun) -> None:
    made = plan(run)
    assert made.step_s is None
    assert "no time estimated" in made.assumptions[0]
    assert "\nstep " not in format_run_plan(made, run, verbose=True)


def test_bubble_of_the_textbook() -> None:
    assert plan(config(pipeline_chunks=1)).bubble == 7 / 128
    assert plan(config(pipeline_chunks=2)).bubble == 7 / 256
    assert plan(config(pipeline_parallel=1)).bubble == 0


def test_a_run_to_the_last_step() -> None:
    whole = dataclasses.replace(GB2048, target_log_perplexity=None, train_samples=GB2048.start_samples + 40 * 2048)
    (length,) = plan(config(whole)).lengths
    assert (length.steps, length.evaluations) == (40, 40 // whole.eval_interval)


def test_a_run_that_does_not_fit_is_shown_and_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The complaint itself is tested with the dry run."""
    too_large = dataclasses.replace(EXAMINED, complaint="rank 0 needs more")
    monkeypatch.setattr("benchmark.planning.run_plans.plan_command.dry_run", lambda _: too_large)
    with pytest.raises(CheckFailed, match="rank 0 needs more"):
        main(["plan", "gpt3_175b"])
    assert "20% of H100" in capsys.readouterr().out
