"""Functions of tensors that one compiled kernel computes on a GPU, instead of one kernel for each operator.

A function is written once, in PyTorch's operators. On a CPU it runs as it is written. On a GPU, before a run,
passes/proofs/kernel_proof.py compiles it by torch.compile (Triton comes with PyTorch's CUDA build) and compares its
numbers with those of the operators; a function that cannot be compiled, or is wrong there, keeps running as it is
written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
Runner = Callable[["FusedKernel[Any, Any]", Sequence[Any]], Any]

COMPILE_OPTIONS: Mapping[str, Any] = {
    # A value that the function rounds to BF16 is rounded there in the compiled kernel too: both give the same bits, but
    # for products that are added without rounding between, exponentials, and the order of sums.
    "emulate_precision_casts": True,
    # Parts that are put side by side are written in place by kernels that share what they read; otherwise each number
    # of the result looks for its part, and reads all that is read for any of them.
    "max_pointwise_cat_inputs": 0,
    "max_complex_pointwise_cat_inputs": 0,
}
"""Options of PyTorch's inductor. Those that an installed version lacks are left out."""


LARGEST_NUMBER_OF_SHAPES = 64


class FusedKernel(Generic[P, R]):
    """A function of tensors that is compiled where that was proved."""

    def __init__(
        self,
        function: Callable[P, R],
        operator_bytes: float,
        changes: Sequence[int],
        overwrites: bool,
        reads_again: Callable[..., Sequence[Tensor]],
    ) -> None:
        self.function, self.name = function, function.__name__
        self.operator_bytes = operator_bytes
        """Bytes that the function's operators read and write, over those of the compiled kernel."""
        self.changes = changes
        self._overwrites, self._reads_again = overwrites, reads_again
        self.compiled: Callable[P, R] | None = None
        """The compiled function, once it is proved in this process."""

    def __call__(self, *arguments: P.args, **none: P.kwargs) -> R:
        if _runners:
            result: R = _runners[-1](self, arguments)
            return result
        return (self.compiled or self.function)(*arguments, **none)

    @property
    def is_fused(self) -> bool:
        """True if calls run as one kernel, or are counted as one."""
        return self.compiled is not None or bool(_runners)

    def bytes_moved(self, arguments: Sequence[Any], result: Any) -> int:
        """Return the bytes that the compiled kernel reads and writes for this call."""
        unread = self.changes if self._overwrites else ()
        inputs = [x for position, x in enumerate(arguments) if isinstance(x, Tensor) and position not in unread]
        again = self._reads_again(*arguments)
        outputs = [result] if isinstance(result, Tensor) else [x for x in result or () if isinstance(x, Tensor)]
        changed = [arguments[position] for position in self.changes]
        return sum(tensor.numel() * tensor.element_size() for tensor in (*inputs, *again, *outputs, *changed))


def fused(
    operator_bytes: float,
    *,
    changes: Sequence[int] = (),
    overwrites: bool = False,
    reads_again: Callable[..., Sequence[Tensor]] = lambda *_: (),
) -> Callable[[Callable[P, R]], FusedKernel[P, R]]:
    """Decorate a function of positional arguments.

    ``operator_bytes``: bytes that its operators read and write over those of one kernel, as a dry run counts them;
    ``changes``: positions of the tensors that it changes in place; ``overwrites``: without reading them;
    ``reads_again``: from the arguments, the tensors that its compiled kernels read twice.
    """
    return lambda function: FusedKernel(function, operator_bytes, changes, overwrites, reads_again)


_runners: list[Runner] = []


@contextmanager
def run_by(runner: Runner) -> Iterator[None]:
    """Let ``runner`` carry out every call of a fused kernel in the block, as a dry run does to count it."""
    _runners.append(runner)
    try:
        yield
    finally:
        _runners.pop()


def compiled(kernel: FusedKernel[P, R], *, deterministic: bool) -> Callable[P, R]:
    """Return the function that compiles ``kernel`` at its first call, and for each new shape."""
    from torch import _dynamo

    _dynamo.config.recompile_limit = max(_dynamo.config.recompile_limit, LARGEST_NUMBER_OF_SHAPES)
    options = known_options(deterministic=deterministic)
    function: Callable[P, R] = torch.compile(kernel.function, fullgraph=True, dynamic=False, options=options)
    return function


def known_options(*, deterministic: bool) -> dict[str, Any]:
    """Return the options of this version of inductor."""
    from torch._inductor import list_options

    options = {**COMPILE_OPTIONS, "deterministic": deterministic}
    return {name: value for name, value in options.items() if name in list_options()}
