"""``--search`` lists every layout of a system that can run and fits in memory, by time to the target."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS, RESERVE
from benchmark.config.benchmark_config import Benchmark
from benchmark.config.field_checks import divisors
from benchmark.config.system_config import System
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions
from benchmark.planning.run_plan.run_length import evaluation_sequences, expected_length, tokens_to_target
from benchmark.planning.step_model.machine_constants import Rates
from benchmark.planning.step_model.memory_formula import memory_need
from benchmark.planning.step_model.simulated_step import simulate_evaluation, simulate_step
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.step_time import StepTime
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
    shard_gradients: bool
    step_s: float
    run_s: float
    """Seconds from run_start to run_stop at the benchmark's expected tokens; of the steps alone if there are none."""
    memory_gb: float
    """10^9 bytes, by formula, on the device that needs most."""
    parts: StepTime

    @property
    def options(self) -> str:
        """Return the layout as options of ``plan`` and ``train``."""
        return (
            f"--tensor-parallel {self.tensor_parallel} --pipeline-parallel {self.pipeline_parallel} "
            f"--pipeline-chunks {self.pipeline_chunks} "
            f"--micro-batch-size {self.micro_batch_size} --recompute {self.recompute}"
            + " --shard-gradients"
            * self.shard_gradients
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


def memory_of_device_gb(system: System) -> float:
    """Return a device's memory in 10^9 bytes; raise InputError if it is not known."""
    if system.memory_gb is None:
        names = ", ".join(name for name, device in ACCELERATORS.items() if device.memory_gb is not None)
        raise InputError(
            f"--search: the memory of {system.accelerator or 'the device'} is not known; --accelerator may be {names}"
        )
    return system.memory_gb


def search_layouts(run: PlannedRun, options: PlanOptions, rates: Rates) -> SearchResult:
    """Return all layouts of the system's devices for the benchmark's batch; ``rates`` are those of its accelerator.

    Raises InputError if no layout can run or fits, naming the nearest one.
    """
    memory_gb = memory_of_device_gb(run.system)
    usable_gb = memory_gb * (1 - RESERVE)
    reasons: Counter[str] = Counter()
    layouts: list[tuple[FoundLayout, Workload]] = []
    smallest = math.inf
    sequences = evaluation_sequences(run.benchmark, run.data)[0]
    for system in candidates(run.system, run.benchmark.model.num_layers, ours=STACKS[options.stack].ours):
        reason = cannot_run(run, system)
        if reason is not None:
            reasons[reason] += 1
            continue
        work = run.workload(options, system)
        need_gb = memory_need(work).total / 1e9
        smallest = min(smallest, need_gb)
        if need_gb > usable_gb:
            reasons[f"memory: more than {usable_gb:.0f} of {memory_gb:.0f} GB"] += 1
            continue
        changed_work, changed_rates = apply_what_if(options.what_if, work, rates)
        parts = simulate_step(changed_work, changed_rates)
        evaluation_s = None if sequences is None else simulate_evaluation(changed_work, changed_rates, sequences)
        layouts.append((_layout(system, run.benchmark, parts, evaluation_s, need_gb), work))
    if not layouts:
        counts = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        mend = f"the smallest needs {smallest:.0f} GB; add --nodes"
        if math.isinf(smallest):
            batch = run.benchmark.global_batch_size
            mend = f"change --nodes or --global-batch-size (now {batch}), a multiple of the data-parallel devices"
        raise InputError(f"--search: no layout of {run.system.num_devices} devices can run: {counts}; {mend}")
    layouts.sort(key=lambda pair: pair[0].run_s)
    fastest, work = layouts[0]
    ideas = []
    for what_if in IDEAS:
        step_s = simulate_step(*apply_what_if([what_if], work, rates)).total
        ideas.append(Idea(what_if, step_s, 1 - step_s / fastest.step_s))
    ideas.sort(key=lambda idea: idea.step_s)
    best = tuple(layout for layout, _ in layouts[:BEST])
    return SearchResult(best, sum(reasons.values()) + len(layouts), dict(reasons.most_common()), tuple(ideas))


def candidates(system: System, layers: int, *, ours: bool = True) -> Iterator[System]:
    """Yield every way to divide the model among the devices: tensor parallel within a node, pipelines with every number
    of chunks that divides the layers, and the optimizer's state over all data-parallel devices; without a pipeline,
    gradients, too, if the code is ``ours``."""
    for tensor in divisors(system.devices_per_node):
        groups = system.num_devices // tensor
        for pipeline in [number for number in divisors(groups) if number <= min(layers, MOST_PIPELINE)]:
            stages = layers // pipeline if layers % pipeline == 0 else 1
            for chunks in divisors(stages) if pipeline > 1 else [1]:
                for micro_batch in MICRO_BATCH_SIZES:
                    for recompute, shard_gradients in itertools.product(
                        RECOMPUTES, (False, True) if ours and pipeline == 1 and groups > 1 else (False,)
                    ):
                        yield dataclasses.replace(
                            system,
                            tensor_parallel=tensor,
                            pipeline_parallel=pipeline,
                            pipeline_chunks=chunks,
                            micro_batch_size=micro_batch,
                            recompute=recompute,
                            shard_gradients=shard_gradients,
                            replicas=1,
                        )


def cannot_run(run: PlannedRun, system: System) -> str | None:
    """Return the reason why the run's model cannot be divided like this; None if it can."""
    try:
        dataclasses.replace(run, system=system).require_fit()
    except InputError as error:
        text = str(error)
        if "do not fill a pipeline" in text:
            return "too few micro-batches, or not a multiple of the pipeline's length"
        if "is not a multiple of micro_batch_size" in text:
            return "the batch cannot be divided among the devices"
        return "tensor parallel does not divide the model"
    return None


def _layout(
    system: System, benchmark: Benchmark, parts: StepTime, evaluation_s: float | None, need_gb: float
) -> FoundLayout:
    run_s = parts.total * benchmark.expected_steps
    if evaluation_s is not None and tokens_to_target(benchmark)[0]:
        run_s = expected_length(benchmark, parts.total, evaluation_s).seconds
    return FoundLayout(
        system.tensor_parallel,
        system.pipeline_parallel,
        system.pipeline_chunks,
        system.data_parallel,
        system.micro_batch_size,
        system.recompute,
        system.shard_gradients,
        parts.total,
        run_s,
        need_gb,
        parts,
    )
