"""Compute the time of this repository's FP8 operands: casts of inputs and gradients, transposes, sums of weight
gradients.

model/passes/fp8_operand.py makes operands by kernels of their own: one finds the largest value, one casts, one
transposes. Other stacks cast in the kernel before the product.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmark.planning.step_model.machine_constants import Rates
from benchmark.planning.step_model.memory_formula import ACCUMULATOR_BYTES
from benchmark.planning.step_model.operation_times import elementwise_s
from benchmark.planning.step_model.workload import Workload

CAST_BYTES = 2 + 2 + 1
"""Bytes per number of an operand: BF16 is read for the largest value and for the cast, and FP8 is written."""
TRANSPOSE_BYTES = 1 + 1
CAST_KERNELS = 9
"""Kernels of an operand, most of them on one number, its scale."""
LayerSizes = Mapping[str, tuple[int, int]]
"""Inputs and outputs of each matrix product of a block on one device, in the order of the forward pass."""


@dataclass(frozen=True)
class CastWork:
    """The operands that are made in a part of a block's passes."""

    operands: int = 0
    numbers: float = 0.0
    """Numbers of these operands together."""
    transposed: float = 0.0
    """Those of operands that are transposed, too."""

    @property
    def bytes(self) -> float:
        """Bytes read and written."""
        return CAST_BYTES * self.numbers + TRANSPOSE_BYTES * self.transposed

    def seconds(self, rates: Rates) -> float:
        extra = TRANSPOSE_BYTES * (rates.common.byte_transposes - 1) * self.transposed
        return elementwise_s(rates, self.bytes + extra, CAST_KERNELS * self.operands)


def cast_work(work: Workload, layers: LayerSizes) -> tuple[CastWork, CastWork, CastWork]:
    """Return the casts of a block and micro-batch: of the forward pass, of the backward pass, and those that
    recomputation repeats in the latter."""
    transposed, recompute = work.layout.fp8_weight_gradients, work.layout.recompute

    def casts_of(numbers: Iterable[int], *, transposed: bool) -> CastWork:
        elements = [work.tokens * number for number in numbers]
        return CastWork(len(elements), sum(elements), sum(elements) if transposed else 0)

    inputs, outputs = zip(*layers.values(), strict=True)
    forward = casts_of(inputs, transposed=transposed and recompute == "none")
    backward = casts_of(outputs, transposed=transposed)
    if recompute == "none" or not (transposed or recompute == "full"):
        return forward, backward, CastWork()
    # Repeating a whole block casts for its products, of which the last one is not repeated.
    return forward, backward, casts_of(inputs if transposed else inputs[:-1], transposed=transposed)


def sums_of_products(work: Workload, weights: int) -> tuple[float, float]:
    """Return the bytes that a weight gradient's product moves besides its operands and a BF16 result, and those of the
    kernel that adds its FP32 result to the sums; a step's first micro-batch adds nothing."""
    micro_batches = work.layout.micro_batches
    added = 3 * ACCUMULATOR_BYTES * weights * (micro_batches - 1) / micro_batches
    return (ACCUMULATOR_BYTES - 2) * weights, added


def update_bytes(work: Workload) -> float:
    """Return the bytes of casting a device's block weights, once a step: FP32 is read for the largest values, too, and
    FP8 is written in the place of BF16."""
    return (4 + 1 - 2) * work.fp8_weights_of_device / work.layout.shards


def weight_transposes_s(work: Workload, rates: Rates) -> float:
    """Return the seconds of transposing the gathered block weights of a device, once a step."""
    moved = TRANSPOSE_BYTES * rates.common.byte_transposes * work.fp8_weights_of_device
    return elementwise_s(rates, moved, 0)
