"""What a micro-batch takes and what comes once, from two steps."""

from collections import Counter

from benchmark.planning.dry_runs.rank_report import KernelCount, MessageCount, ShapeCount, split, work_counts
from benchmark.planning.dry_runs.tracker import Message, OperatorCounts
from benchmark.planning.fake.operator_costs import MatmulShape

SHAPE = MatmulShape(2, 3, 5, 1, "bfloat16", "float32")
GATHER, SUM = Message("all-gather", "tensor", 100), Message("all-reduce", "all", 8)


def counts(micro_batches: int) -> OperatorCounts:
    """Each micro-batch has four products and two gathers, one of them hidden; there is one sum, and one gather more."""
    return OperatorCounts(
        matmuls=Counter({SHAPE: 4 * micro_batches}),
        launches=Counter({"matmul": 4 * micro_batches, "elementwise": 3 * micro_batches - 1}),
        bytes=Counter({"elementwise": 50 * micro_batches - 7}),
        messages=Counter({GATHER: 2 * micro_batches + 1, SUM: 1}),
        alone=Counter({GATHER: micro_batches + 1, SUM: 1}),
        flops_beside=Counter({GATHER: 60 * micro_batches}),
    )


def test_two_steps_give_any() -> None:
    each, once = split(counts(4), counts(6), 4, 2)
    assert each.matmuls == [ShapeCount(SHAPE, 4)] and once.matmuls == []
    assert each.kernels == [KernelCount("matmul", 4, 0), KernelCount("elementwise", 3, 50)]
    assert once.kernels == [KernelCount("elementwise", -1, -7)]  # the first micro-batch has one less
    assert each.messages == [MessageCount("all-gather", "tensor", 100, calls=2, alone=1, flops_beside=60)]
    assert [(message.kind, message.calls, message.alone) for message in once.messages] == [
        ("all-gather", 1, 1),
        ("all-reduce", 1, 1),
    ]
    whole = work_counts(counts(10))
    assert 10 * each.flops + once.flops == whole.flops == 10 * 4 * 60
