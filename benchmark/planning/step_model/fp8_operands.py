"""Compute the time of this repository's FP8 operands: casts of inputs and gradients, transposes, sums of weight
gradients.

A tensor's largest value comes from the kernel that makes it, or another one reads the tensor for it; then a kernel
casts it, with its transpose or to that alone (model/passes/linear/). Of a tensor that tensor-parallel ranks gather,
each casts its own rows, and the gathered FP8 rows are transposed. Where nothing is compiled, a kernel of its own reads
a tensor for its largest value, whether a cast needs that or not, and another one transposes. Other stacks cast in the
kernel before the product.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from benchmark.planning.step_model.machine_constants import Rates
from benchmark.planning.step_model.memory_formula import ACCUMULATOR_BYTES
from benchmark.planning.step_model.operation_times import elementwise_s
from benchmark.planning.step_model.workload import Workload

READ_BYTES = 2 + 2
"""Bytes per number of an operand that are read, in BF16: for the largest value, and for the cast. FP8 is written."""
TRANSPOSE_BYTES = 1 + 1
SLOW_TRANSPOSES = 10.9
"""Time of PyTorch's transposing copy of one-byte numbers over that of its bytes at the memory's rate: pytorch#113560,
268 MB of FP8 in 1.98 ms."""
LargestOrigin = Literal["read", "measured", "known"]
"""The origin of a tensor's largest value: another kernel reads the tensor, the kernel that makes it measures it, or a
scale from the forward pass is kept."""
SCALE_KERNELS: Mapping[LargestOrigin, int] = {"read": 2, "measured": 1, "known": 0}
AGREEMENT_KERNELS, SEPARATE_KERNELS = 2, 12
"""Further kernels of a scale that tensor-parallel ranks agree on, and of one that is made by separate operators."""
LayerSizes = Mapping[str, tuple[int, int]]
"""Inputs and outputs of each matrix product of a block on one device, in the order of the forward pass."""


@dataclass(frozen=True)
class CastWork:
    """The kernels that make operands in a part of a block's passes."""

    kernels: int = 0
    bytes: float = 0.0
    """Bytes read and written."""
    transposing: float = 0.0
    """Those of kernels that transpose, which are slow as a whole."""
    slowness: float | None = None
    """Time of those over that of their bytes; None: as a constant says."""

    def __add__(self, other: "CastWork") -> "CastWork":
        moved, transposing = self.bytes + other.bytes, self.transposing + other.transposing
        return replace(self, kernels=self.kernels + other.kernels, bytes=moved, transposing=transposing)

    def seconds(self, rates: Rates) -> float:
        slowness = self.slowness or rates.common.byte_transposes
        return elementwise_s(rates, self.bytes + (slowness - 1) * self.transposing, self.kernels)


@dataclass(frozen=True)
class OperandTensor:
    """An input or a gradient of a linear layer."""

    numbers: float
    largest: LargestOrigin
    shares: int = 1
    """Tensor-parallel ranks of which each casts its part, before they gather it."""
    measured: float = 0.0
    """Numbers of which the kernel that makes them on this device returns the largest."""

    def measuring(self) -> CastWork:
        """Return the kernel that finds that where nothing is compiled."""
        return CastWork(bool(self.measured), 2 * self.measured)

    def cast(self, *, rows: bool = True, transposed: bool = False, compiled: bool = True) -> CastWork:
        """``rows``: the product takes the rows; ``transposed``: another one takes the transpose."""
        own = self.numbers / self.shares
        read = 2 * own if self.largest == "read" else 0.0
        apart = TRANSPOSE_BYTES * self.numbers * transposed
        if not compiled:
            kernels = 1 + transposed + SEPARATE_KERNELS * (self.largest != "known")
            return CastWork(kernels, read + (2 + 1) * own + apart, apart, SLOW_TRANSPOSES) + self.measuring()
        kernels = 1 + SCALE_KERNELS[self.largest]
        if self.shares == 1:
            moved = (2 + rows + transposed) * self.numbers
            return CastWork(kernels, read + moved, moved * transposed)
        kernels += transposed + AGREEMENT_KERNELS * (self.largest != "known")
        return CastWork(kernels, read + (2 + 1) * own + apart, apart)


def gathers_fp8(work: Workload) -> bool:
    """Return whether tensor-parallel devices gather the tokens' hidden state and its gradient in FP8."""
    return work.fp8 and work.layout.sequence_parallel and work.layout.fp8_weight_gradients


def operand_tensors(work: Workload, layers: LayerSizes) -> tuple[list[OperandTensor], list[OperandTensor]]:
    """Return the inputs and the gradients of a block's linear layers."""
    layout, model = work.layout, work.model
    shares = layout.tensor_parallel if gathers_fp8(work) else 1

    def of_norm(width: int) -> OperandTensor:
        measured = work.tokens * width / layout.tensor_parallel if model.measuring_norms else 0.0
        # gathered in BF16: a kernel knows the largest value of its rank alone
        known = measured and layout.tensor_parallel == shares
        return OperandTensor(work.tokens * width, "measured" if known else "read", shares, measured)

    def of_rank(width: int, *, measured: bool) -> OperandTensor:
        numbers = work.tokens * width
        return OperandTensor(numbers, "measured", measured=numbers) if measured else OperandTensor(numbers, "read")

    (attention, heads), (attended, out), (mlp, inner), (activated, down) = layers.values()
    inputs = [of_norm(attention), of_rank(attended, measured=False), of_norm(mlp), of_rank(activated, measured=True)]
    gradients = [
        of_rank(heads, measured=model.rotary_positions),
        of_norm(out),
        of_rank(inner, measured=True),
        of_norm(down),
    ]
    return inputs, gradients


def cast_work(work: Workload, layers: LayerSizes) -> tuple[CastWork, CastWork, CastWork]:
    """Return the casts of a block and micro-batch: of the forward pass, of the backward pass, and those that
    recomputation repeats in the latter."""
    transposed, recompute, compiled = work.layout.fp8_weight_gradients, work.layout.recompute, _compiled(work)

    def casts_of(tensors: Iterable[OperandTensor], *, rows: bool = True, transposed: bool = transposed) -> CastWork:
        casts = [tensor.cast(rows=rows, transposed=transposed, compiled=compiled) for tensor in tensors]
        return sum(casts, CastWork(slowness=None if compiled else SLOW_TRANSPOSES))

    inputs, gradients = operand_tensors(work, layers)
    forward, backward = casts_of(inputs, transposed=transposed and recompute == "none"), casts_of(gradients)
    again, repeated = list[OperandTensor](), casts_of([])
    if recompute == "full":  # casts for its products; the last product is not repeated
        *all_but_last, last = inputs
        again, repeated = [last], casts_of(all_but_last)
    elif recompute == "selective":
        again = [replace(tensor, largest="known") for tensor in inputs]
    if transposed:
        repeated += casts_of(again, rows=False)
    elif not compiled:  # weight gradients take them in BF16
        repeated = sum((tensor.measuring() for tensor in again), repeated)
    return forward, backward, repeated


def _compiled(work: Workload) -> bool:
    return "compiled-kernels" not in work.without


def sums_of_products(work: Workload, weights: int) -> tuple[float, float]:
    """Return the bytes that a weight gradient's product moves besides its operands and its BF16 result, and those of
    the kernels that add results to the FP32 sums; a step's first addition reads none. Results that travel after each
    micro-batch are added by shard."""
    if work.sums_each_pass:
        return 0.0, (2 + 2 * ACCUMULATOR_BYTES) * weights / work.layout.shards
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
