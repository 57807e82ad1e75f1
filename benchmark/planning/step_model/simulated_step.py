"""Simulate a whole step as parts that add up: passes through the pipeline, data-parallel messages, the update.

A prediction has an interval: it follows from the errors on published steps and from constants that were not
measured.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

from benchmark.planning.step_model.block_times import (
    Passes,
    PassTime,
    block_passes,
    embedding_passes,
    output_passes,
)
from benchmark.planning.step_model.machine_constants import Constant, Rates, rates, values_of
from benchmark.planning.step_model.operation_times import elementwise_s, exposed_s, gather_s, send_s, sum_small_s
from benchmark.planning.step_model.pipeline_events import Pipeline1F1B, pipeline_s
from benchmark.planning.step_model.workload import Workload

ADAM_BYTES = 30
"""Bytes that Adam reads and writes per parameter: FP32 weight and both moments (24), FP32 gradient (4), BF16 weight
(2)."""


@dataclass(frozen=True)
class StepParts(PassTime):
    """Seconds of a step by cause, on the device that computes most; the parts add up to the step."""

    bubble: float = 0.0
    """Seconds of waiting within the pipeline: filling and draining, slower stages, messages."""
    data_messages: float = 0.0
    """Exposed seconds in which gradients are summed and parameters gathered over data-parallel devices."""
    update: float = 0.0
    jitter: float = 0.0
    """Seconds of waiting for the slowest device."""
    fixed: float = 0.0
    """Seconds of input, gradient norm and logging."""


@dataclass(frozen=True)
class Influence:
    """Change of a step when a constant moves to the ends of its plausible range."""

    constant: str
    source: str
    low_s: float
    high_s: float
    """Larger change of the step in seconds; ``low_s`` is the smaller one."""


@dataclass(frozen=True)
class StepInterval:
    """A predicted step with its uncertainty; nine of ten measured steps should lie from ``low_s`` to ``high_s``."""

    parts: StepParts
    low_s: float
    high_s: float
    influences: tuple[Influence, ...]
    """Influences of constants that no published step depends on, the largest first."""

    @property
    def step_s(self) -> float:
        return self.parts.total


def simulate_step(work: Workload, values: Mapping[str, float]) -> StepParts:
    """Return the step of a workload with these constants.

    Raises InputError for names without constants.
    """
    step_rates = _rates(work, values)
    busiest, passes, pipeline_total_s = _passes(work, step_rates)
    devices, common = work.layout.devices, step_rates.common
    fixed_s = _fixed_s(work, step_rates)
    fixed_s += sum_small_s(step_rates, devices=devices, per_node=work.layout.devices_per_node)
    return StepParts(
        **vars(busiest),
        bubble=pipeline_total_s - busiest.total,
        data_messages=_data_messages(work, step_rates, passes),
        update=_update(work, step_rates),
        jitter=pipeline_total_s * common.jitter * math.log2(devices),
        fixed=fixed_s,
    )


def simulate_evaluation(work: Workload, values: Mapping[str, float], sequences: int) -> float:
    """Return the seconds of an evaluation of this many sequences."""
    step_rates, layout = _rates(work, values), work.layout
    micro_batches = math.ceil(sequences / (layout.micro_batch_size * layout.data_parallel))
    pipeline = _pipeline(work, step_rates, stage_passes(work, step_rates))
    slowest = 1 + step_rates.common.jitter * math.log2(layout.devices)
    whole = -(-micro_batches // layout.pipeline_parallel) * layout.pipeline_parallel
    return pipeline_s(pipeline, whole, backward=False) * slowest + _fixed_s(work, step_rates)


def predict_step(work: Workload, constants: Mapping[str, Constant]) -> StepInterval:
    """Return the step and its interval.

    The stack's error in the backtest covers the constants that published steps depended on. Constants of the stack and
    the accelerator that are not ``backed`` by published steps are moved through their ranges one at a time, and
    messages that nobody has measured as hidden are exposed; these influences and that error are independent, so that
    their squares add up.
    """
    values = values_of(constants)
    parts = simulate_step(work, values)
    own = (f"accelerators.{work.accelerator}.", f"stacks.{work.stack}.")
    influences = []
    for name, constant in constants.items():
        if name.startswith(own) and not constant.backed and constant.low < constant.high:
            changes = [
                simulate_step(work, {**values, name: end}).total - parts.total for end in (constant.low, constant.high)
            ]
            influences.append(Influence(name, constant.source, min(0.0, *changes), max(0.0, *changes)))
    for feature in (one for one in work.code.unmeasured if one not in work.without):
        exposed = dataclasses.replace(work, without=(*work.without, feature))
        change_s = simulate_step(exposed, values).total - parts.total
        influences.append(Influence(f"{feature}=off", "not measured", min(0.0, change_s), max(0.0, change_s)))
    error_s = constants[f"stacks.{work.stack}.error"].value * parts.total
    low_s = math.hypot(error_s, *(influence.low_s for influence in influences))
    high_s = math.hypot(error_s, *(influence.high_s for influence in influences))
    influences.sort(key=lambda influence: influence.low_s - influence.high_s)
    return StepInterval(parts, parts.total - low_s, parts.total + high_s, tuple(influences))


def _fixed_s(work: Workload, step_rates: Rates) -> float:
    return step_rates.stack.step_ms * 1e-3 * math.log2(2 * work.layout.devices)


def _rates(work: Workload, values: Mapping[str, float]) -> Rates:
    found = rates(values, work.accelerator, work.stack, network_gbit_s=work.network_gbit_s)
    if "tp-overlap" in work.without:
        found = dataclasses.replace(found, stack=dataclasses.replace(found.stack, tensor_hidden=0.0))
    return found


def stage_passes(work: Workload, step_rates: Rates) -> list[list[Passes]]:
    """Return the passes of a micro-batch by device of the pipeline and chunk."""
    devices, chunks = work.layout.pipeline_parallel, work.layout.pipeline_chunks
    counts, block = work.layers_of_stages, block_passes(work, step_rates)
    by_device = [[block.times(counts[chunk * devices + rank]) for chunk in range(chunks)] for rank in range(devices)]
    by_device[0][0] += embedding_passes(work, step_rates)
    by_device[-1][-1] += output_passes(work, step_rates)
    return by_device


def _passes(work: Workload, step_rates: Rates) -> tuple[PassTime, Passes, float]:
    """Return the busiest device's computation in a step, its passes of one micro-batch, and the pipeline's seconds."""
    by_device = stage_passes(work, step_rates)
    whole = [reduce(add, chunks) for chunks in by_device]
    busiest = max(whole, key=lambda passes: passes.forward.total + passes.backward.total)
    micro_batches = work.layout.micro_batches
    computed = (busiest.forward + busiest.backward).times(micro_batches)
    if work.layout.pipeline_parallel == 1:
        return computed, busiest, computed.total
    return computed, busiest, pipeline_s(_pipeline(work, step_rates, by_device), micro_batches)


def _pipeline(work: Workload, step_rates: Rates, by_device: list[list[Passes]]) -> Pipeline1F1B:
    layout = work.layout
    # each tensor-parallel device sends its part of the hidden state
    size = 2.0 * work.tokens * work.model.hidden_size / layout.tensor_parallel
    stride = layout.devices // layout.pipeline_parallel
    return Pipeline1F1B(
        tuple(tuple(passes.forward.total for passes in chunks) for chunks in by_device),
        tuple(tuple(passes.backward.total for passes in chunks) for chunks in by_device),
        send_s(step_rates, size, stride=stride, per_node=layout.devices_per_node),
        "p2p-overlap" not in work.without,
        work.code.merged_slots,
    )


def _data_messages(work: Workload, step_rates: Rates, passes: Passes) -> float:
    """Return the exposed seconds of a step's data-parallel messages and of messages between the pipeline's ends."""
    layout, stack = work.layout, work.code
    everyone = layout.data_parallel * layout.context_parallel
    ranks = everyone // layout.replicas
    if layout.sharding == "fsdp" and ranks > 1 and layout.pipeline_parallel == 1:
        return _fsdp_messages(work, step_rates, ranks)
    numbers, per_node, stride = work.parameters_of_device, layout.devices_per_node, layout.tensor_parallel
    summed_s = gather_s(step_rates, stack.gradient_bytes * numbers, ranks=everyone, stride=stride, per_node=per_node)
    gathered_s = gather_s(step_rates, 2 * numbers, ranks=everyone, stride=stride, per_node=per_node)
    ends_s = 0.0
    if layout.pipeline_parallel > 1 and work.model.tied:
        size = 2 * stack.gradient_bytes * work.table_weights / layout.tensor_parallel
        ends_s = gather_s(step_rates, size, ranks=2, stride=per_node, per_node=per_node)
    if "dp-overlap" in work.without:
        return summed_s + gathered_s + ends_s
    # all but the last chunk's travel beside the passes that are still to come, of as many micro-batches as the
    # schedule takes in a group; the last chunk's beside the rest of its own pass, block after block
    chunks, group = layout.pipeline_chunks, layout.pipeline_parallel if layout.pipeline_chunks > 1 else 1
    group = min(group, layout.micro_batches)
    beside = (chunks - 1) / chunks * group + 1 / chunks
    share = step_rates.stack.data_hidden * (1 - 1 / (4 * chunks))  # at least a bucket of the last part is exposed
    return (
        exposed_s(step_rates, summed_s, share=share, beside_s=passes.backward.total * beside)
        + exposed_s(step_rates, gathered_s, share=share, beside_s=passes.forward.total * beside)
        + ends_s
    )


def _fsdp_messages(work: Workload, step_rates: Rates, ranks: int) -> float:
    """Return the exposed seconds when each block's parameters are gathered before each pass and its gradients summed
    after."""
    layout, model, stack, per_node = work.layout, work.model, work.code, work.layout.devices_per_node
    stride, tensor = layout.tensor_parallel, layout.tensor_parallel
    weights = model.layer_matrix_weights / tensor

    def moved_s(size: float) -> float:
        return gather_s(step_rates, size, ranks=ranks, stride=stride, per_node=per_node)

    gather, scatter = moved_s(2 * weights), moved_s(stack.gradient_bytes * weights)
    if layout.replicas > 1:  # each device's share is summed over the copies of the model, too
        rest = 2 * stack.gradient_bytes * weights / ranks
        scatter += gather_s(step_rates, rest, ranks=layout.replicas, stride=stride * ranks, per_node=per_node)
    block = block_passes(work, step_rates)
    share = 0.0 if "dp-overlap" in work.without else step_rates.stack.data_hidden
    per_layer = exposed_s(step_rates, gather, share=share, beside_s=block.forward.total)
    per_layer += exposed_s(step_rates, gather + scatter, share=share, beside_s=block.backward.total)
    tables = moved_s((4 + stack.gradient_bytes) * (1 if model.tied else 2) * work.table_weights / tensor)
    return layout.micro_batches * (model.num_layers * per_layer + gather + 0.5 * tables)


def _update(work: Workload, step_rates: Rates) -> float:
    numbers = work.parameters_of_device
    cleared = 0 if work.layout.sharding == "fsdp" else 4 * numbers
    moved = (ADAM_BYTES + 4) * numbers / work.layout.shards + cleared
    return elementwise_s(step_rates, moved, 20)
