"""What more devices cost: the fastest layout from 512 to 16,384 GPUs, and where its time goes."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.dry_run import RESERVE
from benchmark.planning.layout_search.search_layouts import candidates, cannot_run
from benchmark.planning.run_plans.plan_options import PlanOptions, planned_workload
from benchmark.planning.run_plans.run_costs import run_costs
from benchmark.planning.run_plans.run_length import run_length
from benchmark.planning.step_model.machine_constants import Constant, values_of
from benchmark.planning.step_model.memory_formula import memory_need
from benchmark.planning.step_model.simulated_step import StepParts, simulate_evaluation, simulate_step

BEGIN, END = "<!-- scaling: written by python -m tests.speed.fit_plan -->", "<!-- /scaling -->"
SYSTEM = "dgxh100_n64"
NODES = (64, 128, 256, 512, 1024, 2048)
CONSTANT_BATCH = 2048
MOST_BATCH = 8192
"""Beyond it nobody knows how many samples the target takes."""
TENSOR, PIPELINE = (4, 8), (4, 8, 12, 16)
VALIDATION_SEQUENCES = 5660
"""docs/facts/peers.md 1.0."""


@dataclass(frozen=True)
class ScaledRun:
    """The fastest layout of a number of devices."""

    devices: int
    global_batch_size: int
    layout: str
    parts: StepParts
    mfu: float
    run_s: float
    goodput: float
    """Share of the time that failures leave, at the default time between them."""


def scaled_runs(constants: Mapping[str, Constant], *, growing: bool) -> list[ScaledRun]:
    """With a batch of ``CONSTANT_BATCH``, or four samples per device as far as the reference points go."""
    found = []
    for nodes in NODES:
        batch = min(MOST_BATCH, 32 * nodes) if growing else CONSTANT_BATCH
        fastest = min(
            (_run(config, constants) for config in _layouts(nodes, batch)), key=lambda run: run.run_s, default=None
        )
        if fastest is not None:
            found.append(fastest)
    return found


def _layouts(nodes: int, batch: int) -> Iterator[RunConfig]:
    """Those of a search that fit in memory, but for tensor parallel and pipelines that are never the fastest."""
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=batch)
    accelerator = ACCELERATORS[SYSTEMS[SYSTEM].accelerator]
    assert accelerator.memory_gb is not None
    room = accelerator.memory_gb * 1e9 * (1 - RESERVE)
    for config in candidates(RunConfig(benchmark, dataclasses.replace(SYSTEMS[SYSTEM], nodes=nodes))):
        system = config.system
        if system.tensor_parallel not in TENSOR or system.pipeline_parallel not in PIPELINE or cannot_run(config):
            continue
        if memory_need(planned_workload(config, PlanOptions())).total <= room:
            yield config


def _run(config: RunConfig, constants: Mapping[str, Constant]) -> ScaledRun:
    work, values, system = planned_workload(config, PlanOptions()), values_of(constants), config.system
    parts = simulate_step(work, values)
    evaluation_s = simulate_evaluation(work, values, VALIDATION_SEQUENCES)
    goal = config.benchmark.expected_steps * config.tokens_per_step
    length = run_length(config, goal, parts.total, evaluation_s)
    chunks = f"/{system.pipeline_chunks}" if system.pipeline_chunks > 1 else ""
    layout = f"TP {system.tensor_parallel} PP {system.pipeline_parallel}{chunks} DP {system.data_parallel}"
    peak = system.peak_tflops or 1.0
    return ScaledRun(
        system.num_devices,
        config.benchmark.global_batch_size,
        f"{layout}, micro-batch {system.micro_batch_size}, recompute {system.recompute}",
        parts,
        work.flops / (parts.total * system.num_devices * peak * 1e12),
        length.seconds,
        run_costs(config, step_s=parts.total, run_s=None, run_interval_s=None).goodput,
    )


def scaling_markdown(constants: Mapping[str, Constant]) -> str:
    """Two tables for docs/planning.md, between marks."""
    lines = [BEGIN, ""]
    for growing, title in (
        (False, f"Batch {CONSTANT_BATCH:,}:"),
        (True, f"Four samples per GPU, at most {MOST_BATCH:,}:"),
    ):
        lines += [title, ""]
        lines += ["| GPUs | batch | layout | step | MFU | bubble | messages | slowest, fixed | run | with failures |"]
        lines += ["|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|"]
        for run in scaled_runs(constants, growing=growing):
            parts, step_s = run.parts, run.parts.total
            messages, waiting = parts.tensor_messages + parts.data_messages, parts.jitter + parts.fixed
            lines.append(
                f"| {run.devices:,} | {run.global_batch_size:,} | {run.layout} | {step_s:.3g} s | {run.mfu:.1%} | "
                f"{parts.bubble / step_s:.1%} | {messages / step_s:.1%} | {waiting / step_s:.1%} | "
                f"{run.run_s / 60:.1f} min | {run.run_s / run.goodput / 60:.1f} min |"
            )
        lines.append("")
    return "\n".join([*lines, END])
