"""``--search`` lists every layout of a system that can run and fits in memory, by time to the target."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.field_checks import divisors
from benchmark.planning.dry_run.dry_run import RESERVE
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions, planned_workload
from benchmark.planning.run_plan.run_length import evaluation_sequences, expected_length, tokens_to_target
from benchmark.planning.step_model.machine_constants import Constant, values_of
from benchmark.planning.step_model.memory_formula import memory_need
from benchmark.planning.step_model.simulated_step import StepParts, simulate_evaluation, simulate_step
from benchmark.planning.step_model.what_if import IDEAS, apply_what_if
from benchmark.planning.step_model.workload import Workload
from foundation.errors import InputError
from model.decoder_sizes import Recompute

MICRO_BATCH_SIZES = (1, 2, 4, 8)
MOST_PIPELINE = 64
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
BEST = 10


@dataclass(frozen=True)
class FoundLayout:
    """A layout that can run and fits."""

    tensor_parallel: int
    pipeline_parallel: int
    pipeline_chunks: int
    data_parallel: int
    micro_batch_size: int
    recompute: str
    step_s: float
    run_s: float
    """Seconds from run_start to run_stop at the benchmark's expected tokens; of the steps alone if there are none."""
    memory_gb: float
    """10^9 bytes, by formula, on the device that needs most."""
    parts: StepParts

    @property
    def options(self) -> str:
        """Return the layout as options of ``plan`` and ``train``."""
        return (
            f"--tensor-parallel {self.tensor_parallel} --pipeline-parallel {self.pipeline_parallel} "
            f"--pipeline-chunks {self.pipeline_chunks} "
            f"--micro-batch-size {self.micro_batch_size} --recompute {self.recompute}"
        )


@dataclass(frozen=True)
class Idea:
    """Gain of one what-if for the fastest layout."""

    what_if: str
    step_s: float
    gain: float
    """Share of the step that the idea saves."""


@dataclass(frozen=True)
class SearchResult:
    """Result of a search, fastest layouts first."""

    best: tuple[FoundLayout, ...]
    examined: int
    """Number of all layouts examined."""
    fallen_out: dict[str, int]
    """Number of layouts by reason."""
    ideas: tuple[Idea, ...]


def memory_of_device_gb(config: PlannedRun) -> float:
    """Return a device's memory in 10^9 bytes; raise InputError if it is not known."""
    if config.system.memory_gb is None:
        known = ", ".join(name for name, each in ACCELERATORS.items() if each.memory_gb is not None)
        raise InputError(
            f"--search: the memory of {config.system.accelerator or 'the device'} is not known; --accelerator may be "
            f"{known}"
        )
    return config.system.memory_gb


def search_layouts(config: PlannedRun, options: PlanOptions, constants: Mapping[str, Constant]) -> SearchResult:
    """Return all layouts of the system's devices for the benchmark's batch.

    Raises InputError if no layout can run or fits, naming the nearest one.
    """
    memory_gb = memory_of_device_gb(config)
    room = memory_gb * (1 - RESERVE)
    reasons: Counter[str] = Counter()
    found: list[tuple[FoundLayout, Workload]] = []
    smallest = math.inf
    for other in candidates(config):
        reason = cannot_run(other)
        if reason is not None:
            reasons[reason] += 1
            continue
        work = planned_workload(other, options)
        need_gb = memory_need(work).total / 1e9
        smallest = min(smallest, need_gb)
        if need_gb > room:
            reasons[f"memory: more than {room:.0f} of {memory_gb:.0f} GB"] += 1
            continue
        found.append((_layout(other, work, constants, options, need_gb), work))
    if not found:
        told = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        mend = f"the smallest needs {smallest:.0f} GB; add --nodes"
        if math.isinf(smallest):
            batch = config.benchmark.global_batch_size
            mend = f"change --nodes or --global-batch-size (now {batch}), a multiple of the data-parallel devices"
        raise InputError(f"--search: no layout of {config.system.num_devices} devices can run: {told}; {mend}")
    found.sort(key=lambda pair: pair[0].run_s)
    fastest, work = found[0]
    ideas = []
    for what_if in IDEAS:
        changed, with_idea = apply_what_if([what_if], work, constants)
        step_s = simulate_step(changed, values_of(with_idea)).total
        ideas.append(Idea(what_if, step_s, 1 - step_s / fastest.step_s))
    ideas.sort(key=lambda idea: idea.step_s)
    best = tuple(layout for layout, _ in found[:BEST])
    return SearchResult(best, sum(reasons.values()) + len(found), dict(reasons.most_common()), tuple(ideas))


def candidates(config: PlannedRun) -> Iterator[PlannedRun]:
    """Yield every way to deal the model out: tensor parallel within a node, pipelines with every number of chunks that
    divides the layers, and the optimizer's state over all data-parallel devices."""
    system, layers = config.system, config.benchmark.model.num_layers
    for tensor in divisors(system.devices_per_node):
        rest = system.num_devices // tensor
        for pipeline in [number for number in divisors(rest) if number <= min(layers, MOST_PIPELINE)]:
            stages = layers // pipeline if layers % pipeline == 0 else 1
            for chunks in divisors(stages) if pipeline > 1 else [1]:
                for micro_batch in MICRO_BATCH_SIZES:
                    for recompute in RECOMPUTES:
                        layout = dataclasses.replace(
                            system,
                            tensor_parallel=tensor,
                            pipeline_parallel=pipeline,
                            pipeline_chunks=chunks,
                            micro_batch_size=micro_batch,
                            recompute=recompute,
                            replicas=1,
                        )
                        yield dataclasses.replace(config, system=layout)


def cannot_run(config: PlannedRun) -> str | None:
    """Return the reason why the model cannot be dealt out like this; None if it can."""
    try:
        config.require_fit()
    except InputError as error:
        text = str(error)
        if "do not fill a pipeline" in text:
            return "too few micro-batches, or not a multiple of the pipeline's length"
        if "is not a multiple of micro_batch_size" in text:
            return "the batch cannot be dealt out"
        return "tensor parallel does not divide the model"
    return None


def _layout(
    config: PlannedRun, work: Workload, constants: Mapping[str, Constant], options: PlanOptions, need_gb: float
) -> FoundLayout:
    work, constants = apply_what_if(options.what_if, work, constants)
    values = values_of(constants)
    parts = simulate_step(work, values)
    sequences, benchmark, system = evaluation_sequences(config)[0], config.benchmark, config.system
    run_s = parts.total * benchmark.expected_steps
    if sequences is not None and tokens_to_target(benchmark)[0]:
        run_s = expected_length(benchmark, parts.total, simulate_evaluation(work, values, sequences)).seconds
    return FoundLayout(
        system.tensor_parallel,
        system.pipeline_parallel,
        system.pipeline_chunks,
        system.data_parallel,
        system.micro_batch_size,
        system.recompute,
        parts.total,
        run_s,
        need_gb,
        parts,
    )
