"""OperatorCounts of operations as records: what one micro-batch takes, and what comes once."""

import dataclasses
from dataclasses import dataclass

from benchmark.planning.dry_runs.tracker import OperatorCounts
from benchmark.planning.fake.operator_costs import KINDS, AttentionShape, Kind, MatmulShape


@dataclass(frozen=True)
class MatmulCount:
    """Products of one shape."""

    shape: MatmulShape
    calls: int


@dataclass(frozen=True)
class AttentionCount:
    """Passes of attention of one shape."""

    shape: AttentionShape
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

    matmuls: list[MatmulCount]
    attention: list[AttentionCount]
    kernels: list[KernelCount]
    messages: list[MessageCount]

    @property
    def flops(self) -> int:
        """Of matrix products and attention, recomputation included."""
        products = sum(one.calls * one.shape.flops for one in self.matmuls)
        return products + sum(one.calls * one.shape.flops for one in self.attention)


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
        matmuls=[MatmulCount(shape, calls) for shape, calls in counts.matmuls.items() if calls],
        attention=[AttentionCount(shape, calls) for shape, calls in counts.attention.items() if calls],
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
