"""Records of the counts of one kind of rank: work per micro-batch, work once a step, memory."""

import dataclasses
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmark.planning.dry_run.tracker import OperatorCounts
from benchmark.planning.fake_device.device_rules import HostWait
from benchmark.planning.fake_device.operator_costs import KINDS, AttentionShape, MatmulShape, OperatorKind

Shape = TypeVar("Shape", MatmulShape, AttentionShape)


@dataclass(frozen=True)
class ShapeCount(Generic[Shape]):
    """Number of matrix products of one shape, or of attention passes of one shape."""

    shape: Shape
    calls: int


@dataclass(frozen=True)
class KernelCount:
    """Number of kernels of one kind. Operators are counted; nearly every operator is one kernel."""

    kind: OperatorKind
    calls: int
    bytes: int
    """Bytes read and written; 0 for matrix products, attention and collectives."""


@dataclass(frozen=True)
class MessageCount:
    """Number of collectives, or of one side of messages between two ranks, of the same kind, axis and size."""

    kind: str
    axis: str
    """Axis of the mesh, or "all"."""
    bytes: int
    """Bytes of one call's larger side: the result of an all-gather, the input of a reduce-scatter, the message
    otherwise."""
    calls: int
    alone: int
    """Number of these calls with no matrix product or attention queued between call and wait, so that nothing hides
    them."""
    flops_beside: int
    """FLOPs of matrix products and attention queued between call and wait, over all calls."""


@dataclass(frozen=True)
class WorkCounts:
    """Counts of some part of a step."""

    matmuls: list[ShapeCount[MatmulShape]]
    attention: list[ShapeCount[AttentionShape]]
    kernels: list[KernelCount]
    messages: list[MessageCount]

    @property
    def flops(self) -> int:
        """FLOPs of matrix products and attention, recomputation included."""
        matmul_flops = sum(count.calls * count.shape.flops for count in self.matmuls)
        return matmul_flops + sum(count.calls * count.shape.flops for count in self.attention)


@dataclass(frozen=True)
class AxisTraffic:
    """Messages of one kind along one axis of the mesh, over a whole step of the benchmark's global batch."""

    kind: str
    axis: str
    calls: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """Report on one kind of rank; sizes are bytes on the device at the peak of a step of the run."""

    kind: str
    rank: int
    layers: int
    counted: tuple[int, int]
    """Micro-batches of the two steps that were run."""
    parameter_bytes: int
    """Bytes of the FP32 parameter shards."""
    optimizer_bytes: int
    """Bytes of Adam's moments."""
    gathered_bytes: int
    """Bytes of the parameters gathered for use, in the precision of the computation."""
    gradient_bytes: int
    """Bytes of the FP32 gradients that are kept until a step ends."""
    activation_bytes: int
    """Remaining bytes of the peak: activations of the micro-batches under way, and temporary tensors."""
    peak_bytes: int
    after_step_bytes: int
    after_evaluation_bytes: int
    """Bytes left after an evaluation, less the bytes left after a step."""
    peak_bytes_per_micro_batch: int
    """Bytes that each further micro-batch adds; 0 where memory does not depend on their number."""
    after_step_bytes_per_micro_batch: int
    flops_per_micro_batch: int
    """Counted FLOPs, recomputation included."""
    formula_flops_per_micro_batch: float
    """FLOPs by model/flops.py for this rank's part, padding columns of the output included, recomputation not."""
    traffic: list[AxisTraffic]
    per_micro_batch: WorkCounts
    per_step: WorkCounts
    """Work that comes once a step, including the filling and draining of a pipeline."""
    host_waits: list[HostWait]
    """Waits of the host in a step; an evaluation may have none."""


def messages_of_step(
    per_micro_batch: WorkCounts, per_step: WorkCounts, micro_batches: int
) -> dict[tuple[str, str], MessageCount]:
    """Return the messages of a step of ``micro_batches`` by kind and axis; all figures are sums over their calls."""
    sums: dict[tuple[str, str], MessageCount] = {}
    for times, counts in ((micro_batches, per_micro_batch), (1, per_step)):
        for message in counts.messages:
            key = message.kind, message.axis
            subtotal = sums.get(key, MessageCount(*key, 0, 0, 0, 0))
            sums[key] = MessageCount(
                kind=message.kind,
                axis=message.axis,
                bytes=subtotal.bytes + times * message.calls * message.bytes,
                calls=subtotal.calls + times * message.calls,
                alone=subtotal.alone + times * message.alone,
                flops_beside=subtotal.flops_beside + times * message.flops_beside,
            )
    return {key: sums[key] for key in sorted(sums)}


def traffic_of_step(per_micro_batch: WorkCounts, per_step: WorkCounts, micro_batches: int) -> list[AxisTraffic]:
    """Return the traffic by kind and axis. Received messages are not counted: another rank sent them."""
    messages = messages_of_step(per_micro_batch, per_step, micro_batches).values()
    return [
        AxisTraffic(message.kind, message.axis, message.calls, message.bytes)
        for message in messages
        if message.kind != "receive"
    ]


def split(small: OperatorCounts, large: OperatorCounts, number: int, group: int) -> tuple[WorkCounts, WorkCounts]:
    """Split the counts of steps of ``number`` and of ``number + group`` micro-batches into work per micro-batch and
    work once a step."""
    per_micro_batch, per_step = OperatorCounts(), OperatorCounts()
    for field in dataclasses.fields(OperatorCounts):
        smaller, larger, repeated, single = (
            getattr(counts, field.name) for counts in (small, large, per_micro_batch, per_step)
        )
        for key in larger | smaller:
            repeated[key] = round((larger[key] - smaller[key]) / group)
            single[key] = smaller[key] - number * repeated[key]
    return work_counts(per_micro_batch), work_counts(per_step)


def work_counts(counts: OperatorCounts) -> WorkCounts:
    """Return the counts as records, without records of zero calls."""
    return WorkCounts(
        matmuls=[ShapeCount(shape, calls) for shape, calls in counts.matmuls.items() if calls],
        attention=[ShapeCount(shape, calls) for shape, calls in counts.attention.items() if calls],
        kernels=[
            KernelCount(kind, counts.launches[kind], counts.bytes[kind]) for kind in KINDS if counts.launches[kind]
        ],
        messages=[
            MessageCount(
                kind=message.kind,
                axis=message.axis,
                bytes=message.bytes,
                calls=calls,
                alone=counts.alone[message],
                flops_beside=counts.flops_beside[message],
            )
            for message, calls in counts.messages.items()
            if calls
        ],
    )
