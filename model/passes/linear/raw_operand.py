"""An input or a gradient on its way into a matrix product: with the values that spare a cast from reading it twice."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from model.passes.tensor_group import Passing, Pending, TensorGroup, result_of, waited

Scale = tuple[Tensor, Tensor]
"""The factor to the range of a format of FP8, and its reciprocal: FP32 scalars."""


class RawOperand(NamedTuple):
    """A tensor as its kernel made it, or FP8 rows that have travelled between tensor-parallel ranks."""

    tensor: Tensor
    largest: Tensor | None = None
    """The largest absolute values of parts of the tensor, FP32, where its kernel found them."""
    scale: Scale | None = None
    """The scale, where it is known: of FP8 rows, and of an input that is made again."""


class OperandGather:
    """The gather of a tensor's rows from all tensor-parallel ranks, begun as it is made. In FP8 the ranks find their
    largest value first (fp8_operand.py)."""

    def __init__(self, pending: Pending, largest: Tensor | None = None) -> None:
        self.pending, self._largest = pending, largest

    @classmethod
    def of(cls, x: RawOperand, group: TensorGroup) -> "OperandGather":
        """Largest values that a kernel found are those of one rank."""
        return OperandGather(group.gather(x.tensor), x.largest if group.size == 1 else None)

    def send(self) -> None:
        """Begin to gather the rows, if that has not begun. To be called before work that can hide the message."""

    def result(self) -> Passing[RawOperand]:
        self.send()
        return self._operand((yield from result_of(self.pending)))

    def waited(self) -> RawOperand:
        """Return the result without letting another pass compute first."""
        self.send()
        return self._operand(waited(self.pending))

    def _operand(self, tensor: Tensor) -> RawOperand:
        return RawOperand(tensor, self._largest)


RawInput = Callable[[], RawOperand]
"""Makes an input again."""


def raw_operand_by(kernel: Callable[..., Tensor | tuple[Tensor, Tensor]], *inputs: Tensor) -> RawOperand:
    """Return the tensor that ``kernel`` makes of ``inputs``, with its largest values if it returns them."""
    result = kernel(*inputs)
    return RawOperand(result) if isinstance(result, Tensor) else RawOperand(*result)
