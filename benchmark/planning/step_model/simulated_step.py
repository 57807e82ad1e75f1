"""Simulate a whole step as parts that add up: passes through the pipeline, data-parallel messages, the update.

A prediction has an interval: it follows from the errors on published steps and from constants that were not
measured.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from benchmark.planning.step_model.block_times import (
    ForwardBackward,
    block_passes,
    embedding_passes,
    last_weight_gradient_s,
    output_passes,
)
from benchmark.planning.step_model.fp8_operands import update_bytes, weight_transposes_s
from benchmark.planning.step_model.machine_constants import Constant, Rates
from benchmark.planning.step_model.message_groups import group_weights
from benchmark.planning.step_model.operation_times import elementwise_s, exposed_s, gather_s, send_s, sum_small_s
from benchmark.planning.step_model.pipeline_events import Pipeline1F1B, pipeline_s
from benchmark.planning.step_model.step_time import StepTime
from benchmark.planning.step_model.workload import Workload

ADAM_BYTES = 30
"""Bytes that Adam reads and writes per parameter: FP32 weight and both moments (24), FP32 gradient (4), BF16 weight
(2)."""


@dataclass(frozen=True)
class Influence:
    """Change of a step when a constant moves to the ends of its plausible range."""

    constant: str
    source: str
    low_s: float
    high_s: float
    """Larger change of the step in seconds; ``low_s`` is the smaller one."""


def simulate_step(work: Workload, rates: Rates) -> StepTime:
    """Return the step of a workload, on the device that computes most."""
    rates = _without_tensor_overlap(work, rates)
    forward, backward, pipeline_total_s = _passes(work, rates)
    computed = (forward + backward).times(work.layout.micro_batches)
    devices = work.layout.devices
    fixed_s = _fixed_s(work, rates)
    fixed_s += sum_small_s(rates, devices=devices, per_node=work.layout.devices_per_node)
    return computed + StepTime(
        bubble=pipeline_total_s - computed.total,
        data_messages=_data_messages(work, rates, (forward, backward)),
        update=_update(work, rates),
        jitter=pipeline_total_s * rates.jitter(fp8=work.fp8) * math.log2(devices),
        fixed=fixed_s,
    )


def simulate_evaluation(work: Workload, rates: Rates, sequences: int) -> float:
    """Return the seconds of an evaluation of this many sequences."""
    rates, layout = _without_tensor_overlap(work, rates), work.layout
    micro_batches = math.ceil(sequences / (layout.micro_batch_size * layout.data_parallel))
    pipeline = _pipeline(work, rates, stage_passes(work, rates))
    slowest = 1 + rates.jitter(fp8=work.fp8) * math.log2(layout.devices)
    full_groups = -(-micro_batches // layout.pipeline_parallel) * layout.pipeline_parallel
    return pipeline_s(pipeline, full_groups, backward=False) * slowest + _fixed_s(work, rates)


def step_influences(work: Workload, rates: Rates, step_s: float) -> list[Influence]:
    """Return the influences of the constants that no published step depends on, the largest first.

    Constants that are not ``backed`` by published steps are moved through their ranges one at a time, and messages that
    nobody has measured as hidden are exposed. No published step is of this repository's stack: for it, constants of all
    machines count as backed only if they were fitted.
    """
    influences = []
    for name, constant in rates.constants:
        backed = constant.backed and (constant.fitted or not (work.code.ours and name.startswith("common.")))
        if not backed and constant.low < constant.high:
            ends = (Constant(end, end, end, constant.source) for end in (constant.low, constant.high))
            changes = [simulate_step(work, rates.changed({name: end})).total - step_s for end in ends]
            if any(changes):
                influences.append(Influence(name, constant.source, min(0.0, *changes), max(0.0, *changes)))
    for feature in (name for name in work.code.unmeasured if name not in work.without):
        exposed = dataclasses.replace(work, without=(*work.without, feature))
        change_s = simulate_step(exposed, rates).total - step_s
        influences.append(Influence(f"{feature}=off", "not measured", min(0.0, change_s), max(0.0, change_s)))
    influences.sort(key=lambda influence: influence.low_s - influence.high_s)
    return influences


def step_interval(work: Workload, rates: Rates, step_s: float, influences: Sequence[Influence]) -> tuple[float, float]:
    """Return the seconds between which nine of ten measured steps should lie.

    The stack's error in the backtest covers the constants that published steps depended on. That error and the
    influences of the other constants are independent, so that their squares add up.
    """
    error_s = rates.error(fp8=work.fp8) * step_s
    below_s = math.hypot(error_s, *(influence.low_s for influence in influences))
    above_s = math.hypot(error_s, *(influence.high_s for influence in influences))
    return step_s - below_s, step_s + above_s


def _fixed_s(work: Workload, rates: Rates) -> float:
    return rates.stack.step_ms * 1e-3 * math.log2(2 * work.layout.devices)


def _without_tensor_overlap(work: Workload, rates: Rates) -> Rates:
    """Return the rates of a step in which no tensor-parallel message is hidden, if the workload says so."""
    if "tp-overlap" not in work.without:
        return rates
    stack = dataclasses.replace(rates.stack, tensor_hidden=Constant(0.0, 0.0, 0.0, "tp-overlap=off"))
    return dataclasses.replace(rates, stack=stack)


def stage_passes(work: Workload, rates: Rates) -> list[list[ForwardBackward]]:
    """Return the passes of a micro-batch by device of the pipeline and model chunk."""
    devices, chunks = work.layout.pipeline_parallel, work.layout.pipeline_chunks
    passes = block_passes(work, rates)
    in_bf16 = block_passes(work.blocks_in_bf16, rates) if any(work.bf16_layers) else passes
    stages = [
        _sum([_of_layers(passes, fp8_layers), _of_layers(in_bf16, layers - fp8_layers)])
        for layers, fp8_layers in zip(work.layers_of_stages, work.fp8_layers_of_stages, strict=True)
    ]
    by_device = [[stages[chunk * devices + rank] for chunk in range(chunks)] for rank in range(devices)]
    by_device[0][0] = _sum([by_device[0][0], embedding_passes(work, rates)])
    by_device[-1][-1] = _sum([by_device[-1][-1], output_passes(work, rates)])
    return by_device


def _of_layers(passes: ForwardBackward, layers: int) -> ForwardBackward:
    forward, backward = passes
    return forward.times(layers), backward.times(layers)


def _sum(passes: Sequence[ForwardBackward]) -> ForwardBackward:
    """Return the sums of forward and of backward passes."""
    forward, backward = (reduce(add, times) for times in zip(*passes, strict=True))
    return forward, backward


def _passes(work: Workload, rates: Rates) -> tuple[StepTime, StepTime, float]:
    """Return the busiest device's passes of one micro-batch, and the pipeline's seconds."""
    by_device = stage_passes(work, rates)
    forward, backward = max(map(_sum, by_device), key=lambda passes: passes[0].total + passes[1].total)
    micro_batches = work.layout.micro_batches
    if work.layout.pipeline_parallel == 1:
        return forward, backward, (forward + backward).times(micro_batches).total
    return forward, backward, pipeline_s(_pipeline(work, rates, by_device), micro_batches)


def _pipeline(work: Workload, rates: Rates, by_device: list[list[ForwardBackward]]) -> Pipeline1F1B:
    layout = work.layout
    # each tensor-parallel device sends its part of the hidden state
    size = 2.0 * work.tokens * work.model.hidden_size / layout.tensor_parallel
    stride = layout.devices // layout.pipeline_parallel
    message_s = send_s(rates, size, stride=stride, per_node=layout.devices_per_node)
    hidden = "p2p-overlap" not in work.without
    after_send_s = last_weight_gradient_s(work, rates) if hidden and work.code.merged_slots else 0.0
    # of both directions' messages
    slowdown_s = 2 * rates.stack.overlap_slowdown * min(message_s, after_send_s)
    return Pipeline1F1B(
        tuple(tuple(forward.total for forward, _ in chunks) for chunks in by_device),
        tuple(tuple(backward.total + slowdown_s for _, backward in chunks) for chunks in by_device),
        message_s,
        hidden,
        work.code.merged_slots,
        after_send_s,
    )


def _data_messages(work: Workload, rates: Rates, passes: ForwardBackward) -> float:
    """Return the exposed seconds of a step's data-parallel messages and of messages between the pipeline's ends."""
    layout, stack = work.layout, work.code
    copies = layout.data_parallel * layout.context_parallel
    ranks = copies // layout.replicas
    if layout.sharding == "fsdp" and ranks > 1 and layout.pipeline_parallel == 1:
        return _fsdp_messages(work, rates, ranks)
    numbers, per_node, stride = work.parameters_of_device, layout.devices_per_node, layout.tensor_parallel
    groups = group_weights(work) if stack.ours else [1.0]

    def moved_s(size: float) -> float:
        """Return the seconds of a message per group, of ``size`` bytes together."""
        sizes = (size * weights / sum(groups) for weights in groups)
        return sum(gather_s(rates, part, ranks=copies, stride=stride, per_node=per_node) for part in sizes)

    values = 2 * numbers - (work.fp8_weights_of_device if work.makes_operands else 0)
    gradients = stack.gradient_bytes * numbers
    if work.sums_each_pass and work.makes_operands and layout.fp8_weight_gradients:
        gradients -= 2 * work.fp8_weights_of_device  # BF16 products travel
    summed_s, gathered_s = moved_s(gradients), moved_s(values)
    ends_s = 0.0
    if layout.pipeline_parallel > 1 and work.model.tied:
        size = 2 * stack.gradient_bytes * work.table_weights / layout.tensor_parallel
        ends_s = gather_s(rates, size, ranks=2, stride=per_node, per_node=per_node)
    sums = layout.micro_batches if work.sums_each_pass else 1
    if "dp-overlap" in work.without:
        return sums * summed_s + gathered_s + ends_s
    # beside the passes that are still to come, of as many micro-batches as the schedule takes in a group
    chunks, group = layout.pipeline_chunks, layout.pipeline_parallel if layout.pipeline_chunks > 1 else 1
    group = min(group, layout.micro_batches)
    if stack.ours:
        exposed_share, hiding_passes = groups[0] / sum(groups), (len(groups) - 1) / len(groups) * group
    else:  # the last chunk's travel beside the rest of its own pass, block after block; a bucket of it is exposed
        exposed_share, hiding_passes = 1 / (4 * chunks), (chunks - 1) / chunks * group + 1 / chunks
    share = rates.stack.data_hidden * (1 - exposed_share)
    # sums of the passes before the last travel beside the following passes, too
    earlier_s = exposed_s(rates, summed_s, share=rates.stack.data_hidden, beside_s=sum(part.total for part in passes))
    return (
        (sums - 1) * earlier_s
        + exposed_s(rates, summed_s, share=share, beside_s=passes[1].total * hiding_passes)
        + exposed_s(rates, gathered_s, share=share, beside_s=passes[0].total * hiding_passes)
        + ends_s
    )


def _fsdp_messages(work: Workload, rates: Rates, ranks: int) -> float:
    """Return the exposed seconds when each block's parameters are gathered before each pass and its gradients summed
    after."""
    layout, model, stack, per_node = work.layout, work.model, work.code, work.layout.devices_per_node
    stride, tensor = layout.tensor_parallel, layout.tensor_parallel
    weights = model.layer_matrix_weights / tensor

    def moved_s(size: float) -> float:
        return gather_s(rates, size, ranks=ranks, stride=stride, per_node=per_node)

    gather, scatter = moved_s(2 * weights), moved_s(stack.gradient_bytes * weights)
    if layout.replicas > 1:  # each device's share is summed over the copies of the model, too
        share_bytes = 2 * stack.gradient_bytes * weights / ranks
        scatter += gather_s(rates, share_bytes, ranks=layout.replicas, stride=stride * ranks, per_node=per_node)
    forward, backward = block_passes(work, rates)
    share = 0.0 if "dp-overlap" in work.without else rates.stack.data_hidden
    per_layer = exposed_s(rates, gather, share=share, beside_s=forward.total)
    per_layer += exposed_s(rates, gather + scatter, share=share, beside_s=backward.total)
    tables = moved_s((4 + stack.gradient_bytes) * (1 if model.tied else 2) * work.table_weights / tensor)
    return layout.micro_batches * (model.num_layers * per_layer + gather + 0.5 * tables)


def _update(work: Workload, rates: Rates) -> float:
    numbers = work.parameters_of_device
    cleared = 0 if work.layout.sharding == "fsdp" else 4 * numbers
    moved = (ADAM_BYTES + 4) * numbers / work.layout.shards + cleared
    if not work.makes_operands:
        return elementwise_s(rates, moved, 20)
    return elementwise_s(rates, moved + update_bytes(work), 20) + weight_transposes_s(work, rates)
