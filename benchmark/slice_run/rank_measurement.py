"""What one process of a slice measures: steps, memory, where the time goes, and on rank 0 the rates of its device."""

import gc
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from benchmark.config.run_config import RunConfig
from benchmark.config.runtime_variables import runtime_environment
from benchmark.planning.run_plans.calibration import (
    AttentionTime,
    CollectiveTime,
    ElementwiseTime,
    LaunchTime,
    MatmulTime,
)
from benchmark.slice_run.device_rates import attention_times, elementwise_times, launch_time, matmul_times
from benchmark.slice_run.kernel_kinds import OPERATOR_KINDS, kind_of
from benchmark.slice_run.made_up_state import made_up_batches, made_up_state
from benchmark.slice_run.measured_collectives import collective_times
from benchmark.slice_run.step_trace import StepTimes, read_trace, step_times
from benchmark.slice_run.stopwatch import event_now, synchronize
from benchmark.training.engine.distributed import World, end_process, joined_world, read_environment, set_environment
from benchmark.training.engine.settled_attention import settle_attention
from benchmark.training.observers.garbage_pauses import YOUNG, GarbagePauses
from benchmark.training.step import StepResult, train_step

WARM_UP = 2
RATES_S = 40.0
"""No further size of tensor parallelism is begun after so many seconds of timing matrix products."""
OUT_OF_MEMORY = 3
"""Exit status of a process whose device has too little memory."""


@dataclass(frozen=True)
class MeasuredRates:
    """Of rank 0's device."""

    matmuls: tuple[MatmulTime, ...]
    attention: tuple[AttentionTime, ...]
    elementwise: tuple[ElementwiseTime, ...]
    launch: LaunchTime


@dataclass(frozen=True)
class MeasuredSteps:
    """What one process measured with a state in memory."""

    init_s: float
    """From the start of the process group to a state with weights."""
    steps_s: tuple[float, ...]
    window_s: tuple[float, float]
    """When these steps began and ended, seconds since the epoch."""
    losses: tuple[float, ...]
    """Of all steps, those of the warm-up too."""
    skipped: int
    """Steps whose gradients were not finite."""
    peak_bytes: int
    """On a CPU: by how much the process grew."""
    reserved_bytes: int | None
    """Held by PyTorch's allocator; None on a CPU."""
    times: StepTimes | None
    """Of a step on a GPU."""
    operators_s: dict[str, float]
    """Of a step on a CPU: seconds of operators by kind, the longest first."""
    problems: tuple[str, ...]
    """What could not be measured beside the steps, and why."""


@dataclass(frozen=True)
class RankMeasurement(MeasuredSteps):
    """What one process measured."""

    rank: int
    rates: MeasuredRates | None = None
    """Rank 0's, where they could be measured."""
    collectives: tuple[CollectiveTime, ...] = ()


def run_rank(config: RunConfig, steps: int, folder: Path) -> None:
    """Measure, and write ``rank_N.json`` to ``folder``, first with the steps alone, which are then there whatever comes
    after them. A device without memory ends the process with ``OUT_OF_MEMORY``. Also ``trace_N.json``, the profiler's.
    """
    set_environment(runtime_environment(config.system, deterministic=config.deterministic))
    environment = read_environment()
    try:
        with joined_world(config.system, environment) as world:
            measure(config, world, steps, folder)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        print(f"rank {environment.rank}: {' '.join(str(error).split())[:300]}", flush=True)
        end_process(OUT_OF_MEMORY)
    end_process(0)


def is_out_of_memory(error: BaseException) -> bool:
    """Of a GPU, of NCCL on one, or of a CPU's allocator."""
    text = str(error).lower()
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        words in text for words in ("out of memory", "can't allocate memory")
    )


def measure(config: RunConfig, world: World, steps: int, folder: Path) -> RankMeasurement:
    """Collective."""
    settle_attention(config, world)
    measured = measured_steps(config, world, steps, folder / f"trace_{world.rank}.json")
    found = RankMeasurement(rank=world.rank, **vars(measured))
    write_measurement(found, folder)
    gc.collect()  # the state, whatever still points at it
    if world.device.type == "cuda":
        torch.cuda.empty_cache()
    found = replace(found, collectives=tuple(collective_times(world)))
    if world.rank == 0:
        try:
            found = replace(found, rates=device_rates(config, world.device))
        except RuntimeError as error:  # of one kernel; the steps are worth keeping without it
            found = replace(found, problems=(*found.problems, f"rates: {_one_line(error)}"))
    write_measurement(found, folder)
    world.barrier()
    return found


def write_measurement(measurement: RankMeasurement, folder: Path) -> None:
    """Whole or not at all: the process may be ended meanwhile."""
    partial = folder / f".rank_{measurement.rank}.json"
    partial.write_text(json.dumps(asdict(measurement)))
    partial.rename(folder / f"rank_{measurement.rank}.json")


def _one_line(error: BaseException) -> str:
    """PyTorch's errors go on with stacks in C++."""
    return f"{type(error).__name__}: {' '.join(str(error).partition(chr(10))[0].split())}"


def measured_steps(config: RunConfig, world: World, steps: int, trace: Path) -> MeasuredSteps:
    """Collective."""
    started, before, on_gpu = time.perf_counter(), world.peak_memory_bytes(), world.device.type == "cuda"
    state, batches = made_up_state(config, world), made_up_batches(config, world)
    synchronize(world.device)
    init_s = time.perf_counter() - started

    pauses = GarbagePauses()
    pauses.begin()

    def step() -> StepResult:
        result = train_step(state, batches)
        state.progress.steps += 1
        gc.collect(YOUNG)
        return result

    results = [step() for _ in range(WARM_UP)]
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(world.device)
    world.barrier()
    begun = time.time()
    seconds, timed = timed_steps(world.device, steps, step)
    ended, results = time.time(), [*results, *timed]
    peak = world.peak_memory_bytes() - (0 if on_gpu else before)
    times, operators, problems = profiled_step(world.device, step, trace)
    pauses.end()
    return MeasuredSteps(
        init_s=init_s,
        steps_s=tuple(seconds),
        window_s=(begun, ended),
        losses=tuple(result.loss for result in results),
        skipped=sum(result.skipped for result in results),
        peak_bytes=peak,
        reserved_bytes=torch.cuda.max_memory_reserved(world.device) if on_gpu else None,
        times=times,
        operators_s=operators,
        problems=problems,
    )


def timed_steps(
    device: torch.device, count: int, step: Callable[[], StepResult]
) -> tuple[list[float], list[StepResult]]:
    """Seconds from the end of each step's work to that of the next; nothing waits between them that does not in a
    run."""
    synchronize(device)
    if device.type != "cuda":
        ends, results = [time.perf_counter()], []
        for _ in range(count):
            results.append(step())
            ends.append(time.perf_counter())
        return [end - begin for begin, end in pairwise(ends)], results
    events, results = [event_now()], []
    for _ in range(count):
        results.append(step())
        events.append(event_now())
    synchronize(device)
    return [begin.elapsed_time(end) / 1000 for begin, end in pairwise(events)], results


def profiled_step(
    device: torch.device, step: Callable[[], object], trace: Path
) -> tuple[StepTimes | None, dict[str, float], tuple[str, ...]]:
    """One more step under the profiler, which writes ``trace``: times on a GPU, or by operator on a CPU; and why there
    are none, where the profiler fails. The step is made all the same: other processes take part in it."""
    activities = torch.profiler.ProfilerActivity
    on_gpu = device.type == "cuda"
    profile = torch.profiler.profile(activities=[activities.CUDA if on_gpu else activities.CPU])
    problems = _problem_of("profiler", profile.start)
    step()
    synchronize(device)
    problems = problems or _problem_of("profiler", profile.stop)
    problems = problems or _problem_of("trace", lambda: profile.export_chrome_trace(str(trace)))
    if problems:
        return None, {}, problems
    if on_gpu:
        found: list[StepTimes | None] = []
        problems = _problem_of("trace", lambda: found.append(step_times(read_trace(trace))))
        return next(iter(found), None), {}, problems
    by_kind: dict[str, float] = {}
    for operator in profile.key_averages():
        kind = kind_of(operator.key, OPERATOR_KINDS)
        by_kind[kind] = by_kind.get(kind, 0.0) + operator.self_cpu_time_total * 1e-6
    return None, dict(sorted(by_kind.items(), key=lambda item: -item[1])), ()


def _problem_of(what: str, call: Callable[[], object]) -> tuple[str, ...]:
    """What went wrong, in one line; nothing where it went well. A profile is not worth the steps before it."""
    try:
        call()
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        return (f"{what}: {_one_line(error)}",)
    return ()


def device_rates(config: RunConfig, device: torch.device) -> MeasuredRates:
    model, samples = config.benchmark.model, config.system.micro_batch_size
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    tokens = samples * model.seq_length
    return MeasuredRates(
        matmuls=tuple(matmul_times(model, tokens, device, dtype, time.monotonic() + RATES_S)),
        attention=tuple(attention_times(model, samples, device, dtype)),
        elementwise=tuple(elementwise_times(model, tokens, device, dtype)),
        launch=launch_time(device),
    )


def read_measurement(path: Path) -> RankMeasurement:
    """What :func:`write_measurement` wrote; a process's of our own, so nothing is checked."""
    found: dict[str, Any] = json.loads(path.read_text())
    for name in ("steps_s", "window_s", "losses", "problems"):
        found[name] = tuple(found[name])
    if found["times"] is not None:
        found["times"] = StepTimes(**{**found["times"], "unknown_kernels": tuple(found["times"]["unknown_kernels"])})
    if found["rates"] is not None:
        rates = found["rates"]
        found["rates"] = MeasuredRates(
            matmuls=tuple(MatmulTime(**one) for one in rates["matmuls"]),
            attention=tuple(AttentionTime(**one) for one in rates["attention"]),
            elementwise=tuple(ElementwiseTime(**one) for one in rates["elementwise"]),
            launch=LaunchTime(**rates["launch"]),
        )
    found["collectives"] = tuple(CollectiveTime(**one) for one in found["collectives"])
    return RankMeasurement(**found)
