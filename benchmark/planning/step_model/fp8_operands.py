"""Compute the time of this repository's FP8 operands: casts of inputs and gradients, transposes, sums of weight
gradients.

A kernel finds the largest value of a tensor, and another casts it, with its transpose or to that alone
(model/passes/linear/fp8_kernels.py). Where nothing is compiled, a kernel of its own transposes. Other stacks cast in
the kernel before the product.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmark.planning.step_model.machine_constants import Rates
from benchmark.planning.step_model.memory_formula import ACCUMULATOR_BYTES
from benchmark.planning.step_model.operation_times import elementwise_s
from benchmark.planning.step_model.workload import Workload

READ_BYTES = 2 + 2
"""Bytes per number of an operand that are read, in BF16: for the largest value, and for the cast. FP8 is written."""
TRANSPOSE_BYTES = 1 + 1
CAST_KERNELS, SEPARATE_KERNELS = 3, 13
"""Kernels of an operand, compiled and as separate operators. Most of the operators compute its scale."""
SLOW_TRANSPOSES = 10.9
"""Time of PyTorch's transposing copy of one-byte numbers over that of its bytes at the memory's rate: pytorch#113560,
268 MB of FP8 in 1.98 ms."""
LayerSizes = Mapping[str, tuple[int, int]]
"""Inputs and outputs of each matrix product of a block on one device, in the order of the forward pass."""


@dataclass(frozen=True)
class CastWork:
    """The operands that are made in a part of a block's passes."""

    operands: int = 0
    numbers: float = 0.0
    """Numbers of these operands together."""
    rows: float = 0.0
    """Those of operands whose rows are written."""
    transposed: float = 0.0
    """Those of operands whose transpose is written."""
    compiled: bool = True

    def __add__(self, other: "CastWork") -> "CastWork":
        operands, numbers = self.operands + other.operands, self.numbers + other.numbers
        return CastWork(operands, numbers, self.rows + other.rows, self.transposed + other.transposed, self.compiled)

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        if self.compiled:
            return READ_BYTES * self.numbers + self.rows + self.transposed
        return (READ_BYTES + 1) * self.numbers + TRANSPOSE_BYTES * self.transposed

    def seconds(self, rates: Rates) -> float:
        if self.compiled:  # a kernel that transposes is slow as a whole
            slow = 3 * self.transposed + min(self.rows, self.transposed)
            extra, kernels = (rates.common.byte_transposes - 1) * slow, CAST_KERNELS
        else:
            extra, kernels = (SLOW_TRANSPOSES - 1) * TRANSPOSE_BYTES * self.transposed, SEPARATE_KERNELS
        return elementwise_s(rates, self.bytes + extra, kernels * self.operands)


def cast_work(work: Workload, layers: LayerSizes) -> tuple[CastWork, CastWork, CastWork]:
    """Return the casts of a block and micro-batch: of the forward pass, of the backward pass, and those that
    recomputation repeats in the latter."""
    transposed, recompute = work.layout.fp8_weight_gradients, work.layout.recompute

    def casts_of(widths: Iterable[int], *, rows: bool = True, transposed: bool = False) -> CastWork:
        elements = [work.tokens * width for width in widths]
        numbers = sum(elements)
        return CastWork(len(elements), numbers, rows * numbers, transposed * numbers, _compiled(work))

    inputs, outputs = zip(*layers.values(), strict=True)
    forward = casts_of(inputs, transposed=transposed and recompute == "none")
    backward, repeated = casts_of(outputs, transposed=transposed), CastWork()
    *all_but_last, last = inputs
    if recompute == "full":  # casts for its products; the last product is not repeated
        repeated = casts_of(all_but_last, transposed=transposed)
        repeated += casts_of([last], rows=False, transposed=True) if transposed else CastWork()
    elif recompute == "selective" and transposed:
        repeated = casts_of(inputs, rows=False, transposed=True)
    return forward, backward, repeated


def _compiled(work: Workload) -> bool:
    return "compiled-kernels" not in work.without


def sums_of_products(work: Workload, weights: int) -> tuple[float, float]:
    """Return the bytes that a weight gradient's product moves besides its operands and its BF16 result, and those of
    the kernels that add results to the FP32 sums; a step's first addition reads none."""
    micro_batches, together = work.layout.micro_batches, work.weight_terms if _compiled(work) else 1
    turn = work.turn or micro_batches
    additions = sum(
        passes // together + passes % together  # the rest of a turn is added product by product
        for passes in (min(turn, micro_batches - first) for first in range(0, micro_batches, turn))
    )
    return 0.0, (2 + (2 * additions - 1) / micro_batches * ACCUMULATOR_BYTES) * weights


def update_bytes(work: Workload) -> float:
    """Return the bytes of casting a device's block weights, once a step: FP32 is read for the largest values, too, and
    FP8 is written in the place of BF16."""
    return (4 + 1 - 2) * work.fp8_weights_of_device / work.layout.shards


def weight_transposes_s(work: Workload, rates: Rates) -> float:
    """Return the seconds of transposing the gathered block weights of a device, once a step."""
    slowness = rates.common.byte_transposes if _compiled(work) else SLOW_TRANSPOSES
    return elementwise_s(rates, TRANSPOSE_BYTES * slowness * work.fp8_weights_of_device, 0)
