"""What was counted of a kind of rank, as records: what one micro-batch takes, what comes once a step, memory."""

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmark.planning.dry_runs.tracker import OperatorCounts
from benchmark.planning.fake.device_rules import HostWait
from benchmark.planning.fake.operator_costs import KINDS, AttentionShape, Kind, MatmulShape

Shape = TypeVar("Shape", MatmulShape, AttentionShape)


@dataclass(frozen=True)
class ShapeCount(Generic[Shape]):
    """Products of one shape, or passes of attention."""

    shape: Shape
    calls: int


@dataclass(frozen=True)
class KernelCount:
    """Kernels of one kind. Operators are counted; nearly all are one kernel."""

    kind: Kind
    calls: int
    bytes: int
    """Read and written; 0 for matrix products, attention and collectives."""


@dataclass(frozen=True)
class MessageCount:
    """Collectives, or one side of messages between two ranks, of the same kind, axis and size."""

    kind: str
    axis: str
    """Of the mesh, or "all"."""
    bytes: int
    """Of one call, the larger side: what an all-gather puts together, a reduce-scatter begins with, others send."""
    calls: int
    alone: int
    """Of these, with no matrix product or attention queued between call and wait: nothing hides them."""
    flops_beside: int
    """Of products and attention queued between call and wait, all calls together."""


@dataclass(frozen=True)
class WorkCounts:
    """Of some part of a step."""

    matmuls: list[ShapeCount[MatmulShape]]
    attention: list[ShapeCount[AttentionShape]]
    kernels: list[KernelCount]
    messages: list[MessageCount]

    @property
    def flops(self) -> int:
        """Of matrix products and attention, recomputation included."""
        return sum(one.calls * one.shape.flops for some in (self.matmuls, self.attention) for one in some)


@dataclass(frozen=True)
class AxisTraffic:
    """Messages of one kind along one axis of the mesh, in a whole step of the benchmark's global batch."""

    kind: str
    axis: str
    calls: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """One kind of rank; bytes on the device at the peak of a step with the run's number of micro-batches."""

    kind: str
    rank: int
    layers: int
    counted: tuple[int, int]
    """Micro-batches of the two steps that were run."""
    parameter_bytes: int
    """FP32 shards."""
    optimizer_bytes: int
    """Adam's moments."""
    gathered_bytes: int
    """Parameters gathered for use, in the precision of the computation."""
    gradient_bytes: int
    """FP32 gradients before they are reduced."""
    activation_bytes: int
    """The rest of the peak: activations of the micro-batches under way, and what operations need for the moment."""
    peak_bytes: int
    after_step_bytes: int
    after_evaluation_bytes: int
    """Less what a step leaves: what an evaluation leaves besides."""
    peak_bytes_per_micro_batch: int
    """How much more each further micro-batch adds: 0 where their number does not matter."""
    after_step_bytes_per_micro_batch: int
    flops_per_micro_batch: int
    """Counted, recomputation included."""
    formula_flops_per_micro_batch: float
    """By model/flops.py for this rank's part, padding columns of the output included, recomputation not."""
    traffic: list[AxisTraffic]
    per_micro_batch: WorkCounts
    per_step: WorkCounts
    """What comes once, the filling and draining of a pipeline included."""
    host_waits: list[HostWait]
    """Of a step; in an evaluation there may be none."""


def messages_of_step(
    per_micro_batch: WorkCounts, per_step: WorkCounts, micro_batches: int
) -> Iterator[tuple[tuple[str, str], MessageCount]]:
    """Every message of a step of so many micro-batches, by kind and axis; sums over its calls."""
    for times, counts in ((micro_batches, per_micro_batch), (1, per_step)):
        for one in counts.messages:
            calls = times * one.calls
            yield (
                (one.kind, one.axis),
                dataclasses.replace(one, calls=calls, alone=times * one.alone, flops_beside=times * one.flops_beside),
            )


def traffic_of_step(per_micro_batch: WorkCounts, per_step: WorkCounts, micro_batches: int) -> list[AxisTraffic]:
    """By kind and axis. What is received was sent by another rank."""
    calls: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for key, one in messages_of_step(per_micro_batch, per_step, micro_batches):
        calls[key] += one.calls
        sizes[key] += one.calls * one.bytes
    return [AxisTraffic(*key, calls[key], sizes[key]) for key in sorted(calls) if key[0] != "receive"]


def split(small: OperatorCounts, large: OperatorCounts, first: int, more: int) -> tuple[WorkCounts, WorkCounts]:
    """What a micro-batch takes, and what comes once: of steps of ``first`` and of ``first + more`` micro-batches."""
    each, once = OperatorCounts(), OperatorCounts()
    for one in dataclasses.fields(OperatorCounts):
        fewer, all_, per_batch, rest = (getattr(counts, one.name) for counts in (small, large, each, once))
        for key in all_ | fewer:
            per_batch[key] = round((all_[key] - fewer[key]) / more)
            rest[key] = fewer[key] - first * per_batch[key]
    return work_counts(each), work_counts(once)


def work_counts(counts: OperatorCounts) -> WorkCounts:
    """As records, without those of no calls."""
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
