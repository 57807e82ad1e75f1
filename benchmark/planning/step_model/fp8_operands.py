"""Compute the time of this repository's FP8 operands: casts of inputs and gradients, transposes, sums of weight
gradients.

model/passes/fp8_operand.py makes operands by kernels of their own: one finds the largest value, one casts, one
transposes. Other stacks cast in the kernel before the product.
"""

from collections.abc import Mapping

from benchmark.planning.step_model.machine_constants import Rates
from benchmark.planning.step_model.memory_formula import ACCUMULATOR_BYTES
from benchmark.planning.step_model.operation_times import elementwise_s
from benchmark.planning.step_model.workload import Workload

CAST_BYTES = 2 + 2 + 1
"""Bytes per number of an operand: BF16 is read for the largest value and for the cast, and FP8 is written."""
TRANSPOSE_BYTES = 1 + 1
CAST_KERNELS = 16
"""Kernels of an operand, most of them on one number, its scale."""
LayerSizes = Mapping[str, tuple[int, int]]
"""Inputs and outputs of each matrix product of a block on one device."""


def cast_times(work: Workload, rates: Rates, layers: LayerSizes) -> tuple[float, float, float]:
    """Return the seconds of the casts of a block and micro-batch: forward, backward, and those that recomputation
    repeats."""
    inputs, outputs = (work.tokens * sum(sizes[side] for sizes in layers.values()) for side in (0, 1))
    transposed = work.layout.fp8_weight_gradients
    keeps_inputs = work.layout.recompute == "none"
    forward = _operands_s(rates, inputs, len(layers), transposed=transposed and keeps_inputs)
    backward = _operands_s(rates, outputs, len(layers), transposed=transposed)
    repeated = 0.0
    if not keeps_inputs and (transposed or work.layout.recompute == "full"):
        repeated = _operands_s(rates, inputs, len(layers), transposed=transposed)
    return forward, backward, repeated


def _operands_s(rates: Rates, numbers: float, operands: int, *, transposed: bool) -> float:
    moved = CAST_BYTES * numbers
    if transposed:
        moved += TRANSPOSE_BYTES * rates.common.byte_transposes * numbers
    return elementwise_s(rates, moved, CAST_KERNELS * operands)


def sums_of_products(work: Workload, weights: int) -> tuple[float, float]:
    """Return the bytes that a weight gradient's product moves besides its operands and a BF16 result, and those of the
    kernel that adds its FP32 result to the sums; a step's first micro-batch adds nothing."""
    micro_batches = work.layout.micro_batches
    added = 3 * ACCUMULATOR_BYTES * weights * (micro_batches - 1) / micro_batches
    return (ACCUMULATOR_BYTES - 2) * weights, added


def update_bytes(work: Workload) -> float:
    """Return the bytes of casting a device's block weights, once a step: FP32 is read for the largest values and for
    the cast, and FP8 is written in the place of BF16."""
    return (4 + 4 + 1 - 2) * work.block_weights_of_device / work.layout.shards


def weight_transposes_s(work: Workload, rates: Rates) -> float:
    """Return the seconds of transposing the gathered block weights of a device, once a step."""
    moved = TRANSPOSE_BYTES * rates.common.byte_transposes * work.block_weights_of_device
    return elementwise_s(rates, moved, 0)
