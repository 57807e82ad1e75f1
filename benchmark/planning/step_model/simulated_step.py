"""A whole step, in parts that add up to it: passes through the pipeline, data-parallel messages, the update."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchmark.planning.step_model.block_times import (
    Passes,
    PassTime,
    block_passes,
    embedding_passes,
    output_passes,
)
from benchmark.planning.step_model.collective_times import gather_s, send_s, sum_small_s
from benchmark.planning.step_model.machine_constants import Rates, rates
from benchmark.planning.step_model.operator_times import elementwise_s
from benchmark.planning.step_model.pipeline_events import Pipeline1F1B, evaluation_pipeline_s, pipeline_s
from benchmark.planning.step_model.stacks import STACKS, Stack
from benchmark.planning.step_model.workload import Workload
from stage.errors import InputError

EAGER_ELEMENTWISE = 3.0
"""Bytes of elementwise kernels of a stack that compiles its blocks, where it does not. Counted for a forward pass of a
block of Llama 3 8B: RMSNorm by operators in FP32 36 bytes a number, rotation in FP32 20, SiLU and its product 10,
residuals 6; that is 3.1 times what one kernel for each moves."""
ADAM_BYTES = 30
"""Read and written per parameter: FP32 weight, both moments (24), FP32 gradient (4), BF16 weight (2)."""


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step by where they go, on the device that computes most; together they are the step."""

    matmul: float
    attention: float
    elementwise: float
    recomputed: float
    tensor_messages: float
    """Exposed ones; so below."""
    host: float
    losses: float
    bubble: float
    """Waiting within the pipeline, for its filling and for slower stages' and messages' sake."""
    data_messages: float
    """Gradients summed and parameters gathered over data-parallel devices, where nothing hides them."""
    update: float
    jitter: float
    """Waiting for the slowest device."""
    fixed: float
    """Input, gradient norm, logging."""

    @property
    def total(self) -> float:
        return float(sum(dataclasses.astuple(self)))


def simulate_step(work: Workload, values: Mapping[str, float]) -> StepParts:
    """The step of a workload with these constants.

    Raises InputError for names without constants, and a precision that the stack does not have.
    """
    stack, step_rates = stack_of(work), _rates(work, values)
    busiest, passes_s, pipeline_total_s = _passes(work, stack, step_rates)
    messages_s = _data_messages(work, stack, step_rates, passes_s)
    update_s = _update(work, step_rates)
    devices, common = work.layout.devices, step_rates.common
    jitter_s = pipeline_total_s * common.jitter * math.log2(devices)
    fixed_s = step_rates.stack.step_ms * 1e-3 * math.log2(2 * devices)
    fixed_s += sum_small_s(step_rates, devices=devices, per_node=work.layout.devices_per_node)
    return StepParts(
        **{entry.name: getattr(busiest, entry.name) for entry in dataclasses.fields(busiest)},
        bubble=pipeline_total_s - busiest.total,
        data_messages=messages_s,
        update=update_s,
        jitter=jitter_s,
        fixed=fixed_s,
    )


def simulate_evaluation(work: Workload, values: Mapping[str, float], sequences: int) -> float:
    """Seconds of an evaluation of so many sequences."""
    stack, step_rates = stack_of(work), _rates(work, values)
    layout = work.layout
    micro_batches = math.ceil(sequences / (layout.micro_batch_size * layout.data_parallel))
    by_device = stage_passes(work, stack, step_rates)
    pipeline = _pipeline(work, stack, step_rates, by_device)
    common = step_rates.common
    slowest = 1 + common.jitter * math.log2(layout.devices)
    whole = -(-micro_batches // layout.pipeline_parallel) * layout.pipeline_parallel
    return evaluation_pipeline_s(pipeline, whole) * slowest + step_rates.stack.step_ms * 1e-3 * math.log2(
        2 * layout.devices
    )


def _rates(work: Workload, values: Mapping[str, float]) -> Rates:
    found = rates(values, work.accelerator, work.stack, network_gbit_s=work.network_gbit_s, watts=work.watts)
    if "tp-overlap" in work.without:
        found = dataclasses.replace(found, stack=dataclasses.replace(found.stack, tensor_hidden=0.0))
    if "compile" in work.without and stack_of(work).compiled:
        slower = found.stack.elementwise * EAGER_ELEMENTWISE
        found = dataclasses.replace(found, stack=dataclasses.replace(found.stack, elementwise=slower))
    return found


def stack_of(work: Workload) -> Stack:
    """Raises InputError for a stack that is not there, or does not have the precision."""
    stack = STACKS.get(work.stack)
    if stack is None:
        raise InputError(f"stack {work.stack}: unknown; there are {', '.join(STACKS)}; change --stack")
    if work.precision not in stack.precisions:
        having = ", ".join(name for name, each in STACKS.items() if work.precision in each.precisions)
        raise InputError(
            f"stack {work.stack} has no {work.precision}, only {', '.join(stack.precisions)}; stacks with "
            f"{work.precision}: {having}; change --precision or --stack"
        )
    if "p2p-overlap" in work.without:
        stack = dataclasses.replace(stack, pipeline_hidden=False)
    if "dp-overlap" in work.without:
        stack = dataclasses.replace(stack, data_hidden=False)
    if "bf16-reduce" in work.without:
        stack = dataclasses.replace(stack, gradient_bytes=4)
    return stack


def layers_of_stages(work: Workload) -> list[int]:
    """Layers of each pipeline stage; the first get what is left over (as model/sharding.py deals them out), unless
    the stack counts embedding and output as a layer each and they go up then."""
    layers, stages = work.model.layers, work.layout.pipeline_parallel * work.layout.pipeline_chunks
    share, left_over = divmod(layers, stages)
    if left_over and stack_of(work).ends_count and (layers + 2) % stages == 0:
        counts = [(layers + 2) // stages] * stages
        counts[0], counts[-1] = counts[0] - 1, counts[-1] - 1
        return counts
    return [share + (stage < left_over) for stage in range(stages)]


def stage_passes(work: Workload, stack: Stack, step_rates: Rates) -> list[list[Passes]]:
    """Passes of a micro-batch by device of the pipeline and chunk."""
    layout = work.layout
    devices, chunks = layout.pipeline_parallel, layout.pipeline_chunks
    counts = layers_of_stages(work)
    block = block_passes(work, stack, step_rates)
    by_device = [[block.times(counts[chunk * devices + rank]) for chunk in range(chunks)] for rank in range(devices)]
    by_device[0][0] += embedding_passes(work, step_rates)
    by_device[-1][-1] += output_passes(work, stack, step_rates)
    return by_device


def _passes(work: Workload, stack: Stack, step_rates: Rates) -> tuple[PassTime, Passes, float]:
    """What the busiest device computes in a step, its passes of one micro-batch, and seconds of the pipeline."""
    by_device = stage_passes(work, stack, step_rates)
    whole = [_sum(chunks) for chunks in by_device]
    busiest = max(whole, key=lambda passes: passes.forward.total + passes.backward.total)
    micro_batches = work.layout.micro_batches
    computed = (busiest.forward + busiest.backward).times(micro_batches)
    if work.layout.pipeline_parallel == 1:
        return computed, busiest, computed.total
    return computed, busiest, pipeline_s(_pipeline(work, stack, step_rates, by_device), micro_batches)


def _sum(passes: list[Passes]) -> Passes:
    total = passes[0]
    for each in passes[1:]:
        total += each
    return total


def _pipeline(work: Workload, stack: Stack, step_rates: Rates, by_device: list[list[Passes]]) -> Pipeline1F1B:
    layout = work.layout
    shared = layout.tensor_parallel  # each tensor-parallel device sends its part, and they gather it where need be
    size = 2.0 * work.tokens * work.model.hidden / shared
    stride = layout.devices // layout.pipeline_parallel
    return Pipeline1F1B(
        tuple(tuple(passes.forward.total for passes in chunks) for chunks in by_device),
        tuple(tuple(passes.backward.total for passes in chunks) for chunks in by_device),
        send_s(step_rates, size, stride=stride, per_node=layout.devices_per_node),
        stack.pipeline_hidden,
        stack.schedule == "merged slots",
    )


def parameters_of_device(work: Workload) -> float:
    """Numbers that the device with most of them computes with: blocks, and a table at an end of the pipeline."""
    layout, model = work.layout, work.model
    counts = layers_of_stages(work)
    blocks = max(sum(counts[rank :: layout.pipeline_parallel]) for rank in range(layout.pipeline_parallel))
    tables = 1 if layout.pipeline_parallel > 1 or model.tied else 2
    return (blocks * model.block_weights + tables * model.vocab * model.hidden) / layout.tensor_parallel


def _data_messages(work: Workload, stack: Stack, step_rates: Rates, passes: Passes) -> float:
    """Exposed seconds of a step's data-parallel messages, with those between the ends of the pipeline."""
    layout = work.layout
    ranks = layout.data_parallel * layout.context_parallel // layout.replicas
    stride = layout.tensor_parallel
    if layout.sharding == "fsdp" and ranks > 1 and layout.pipeline_parallel == 1:
        return _fsdp_messages(work, stack, step_rates, ranks)
    numbers, per_node = parameters_of_device(work), layout.devices_per_node
    everyone = ranks * layout.replicas
    summed_s = gather_s(step_rates, stack.gradient_bytes * numbers, ranks=everyone, stride=stride, per_node=per_node)
    if stack.sums_whole and layout.sharding != "none":
        summed_s *= 2
    second = 2 if layout.sharding != "none" else stack.gradient_bytes
    gathered_s = gather_s(step_rates, second * numbers, ranks=everyone, stride=stride, per_node=per_node)
    ends_s = 0.0
    if layout.pipeline_parallel > 1 and work.model.tied:
        size = 2 * stack.gradient_bytes * work.model.vocab * work.model.hidden / layout.tensor_parallel
        ends_s = gather_s(step_rates, size, ranks=2, stride=per_node, per_node=per_node)
    if not stack.data_hidden:
        return summed_s + gathered_s + ends_s
    # all but the last chunk's travel beside the passes that are still to come, of as many micro-batches as the
    # schedule takes in a group; the last chunk's beside the rest of its own pass, block after block
    chunks, group = layout.pipeline_chunks, layout.pipeline_parallel if layout.pipeline_chunks > 1 else 1
    group = min(group, layout.micro_batches)
    beside = (chunks - 1) / chunks * group + 1 / chunks
    slow = step_rates.common.overlap_slowdown
    share = step_rates.stack.data_hidden * (1 - 1 / (4 * chunks))
    return (
        _rest(summed_s, passes.backward.total * beside, share, slow)
        + _rest(gathered_s, passes.forward.total * beside, share, slow)
        + ends_s
    )


def _rest(messages_s: float, beside_s: float, share: float, slowdown: float) -> float:
    """What is left exposed of messages in several parts beside computation: at least a bucket of the last part."""
    hidden = min(beside_s, messages_s * share)
    return messages_s - hidden + slowdown * hidden


def _fsdp_messages(work: Workload, stack: Stack, step_rates: Rates, ranks: int) -> float:
    """Exposed seconds where each block's parameters are gathered before each pass, its gradients summed after."""
    layout, model, per_node = work.layout, work.model, work.layout.devices_per_node
    stride, tensor = layout.tensor_parallel, layout.tensor_parallel
    weights = model.block_weights / tensor

    def moved_s(size: float) -> float:
        return gather_s(step_rates, size, ranks=ranks, stride=stride, per_node=per_node)

    gather, scatter = moved_s(2 * weights), moved_s(stack.gradient_bytes * weights)
    if layout.replicas > 1:  # and over the copies of the model, what each device is left with
        rest = 2 * stack.gradient_bytes * weights / ranks
        scatter += gather_s(step_rates, rest, ranks=layout.replicas, stride=stride * ranks, per_node=per_node)
    block = block_passes(work, stack, step_rates)
    slow = step_rates.common.overlap_slowdown

    def exposed(messages_s: float, beside_s: float) -> float:
        hidden = min(messages_s * step_rates.stack.data_hidden, beside_s) if stack.data_hidden else 0.0
        return messages_s - hidden + slow * hidden

    per_layer = exposed(gather, block.forward.total) + exposed(gather + scatter, block.backward.total)
    tables = moved_s((4 + stack.gradient_bytes) * (1 if model.tied else 2) * model.vocab * model.hidden / tensor)
    return layout.micro_batches * (model.layers * per_layer + gather + 0.5 * tables)


def _update(work: Workload, step_rates: Rates) -> float:
    layout = work.layout
    numbers = parameters_of_device(work)
    shards = 1 if layout.sharding == "none" else layout.data_parallel * layout.context_parallel / layout.replicas
    cleared = 0 if layout.sharding == "fsdp" else 4 * numbers
    return elementwise_s(step_rates.device, step_rates.common, (ADAM_BYTES + 4) * numbers / shards + cleared, 20)
