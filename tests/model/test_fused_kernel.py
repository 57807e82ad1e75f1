"""A fused kernel runs by its operators, by the compiled function or by a runner; the bytes of a call."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from model.fused_kernel import FusedKernel, fused, run_by

Kernel = FusedKernel[Any, Any]


def sum_and_double(x: Tensor, row: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    return x + row, factor * x


def add_in_place(x: Tensor, row: Tensor) -> None:
    x += row


@pytest.mark.parametrize(
    ("kernel", "arguments", "moved"),
    [
        (fused(2)(sum_and_double), (2.0,), 24 + 8 + 24 + 24),  # reads both, writes two
        (fused(2, changes=[0])(add_in_place), (), 24 + 8 + 24),
        (fused(2, reads_again=lambda x, *_: [x])(sum_and_double), (2.0,), 24 + 24 + 8 + 24 + 24),
    ],
)
def test_bytes_of_a_call(kernel: Kernel, arguments: Sequence[Any], moved: int) -> None:
    tensors = torch.ones(3, 4, dtype=torch.bfloat16), torch.ones(4, dtype=torch.bfloat16)
    assert kernel.bytes_moved((*tensors, *arguments), kernel(*tensors, *arguments)) == moved


def test_operators_unless_compiled_and_a_runner_before_both() -> None:
    kernel: Kernel = fused(2)(sum_and_double)
    assert not kernel.is_fused
    assert kernel(torch.tensor(1.0), torch.tensor(2.0), 3.0) == (torch.tensor(3.0), torch.tensor(3.0))
    kernel.compiled = lambda *_: (torch.tensor(5.0), torch.tensor(6.0))
    assert kernel.is_fused
    assert kernel(torch.tensor(1.0), torch.tensor(2.0), 3.0) == (5, 6)
    calls: list[tuple[str, Sequence[Any]]] = []
    with run_by(lambda called, arguments: calls.append((called.name, arguments))):
        kernel(1, 2, 3)
    assert calls == [("sum_and_double", (1, 2, 3))]
    assert kernel(torch.tensor(1.0), torch.tensor(2.0), 3.0) == (5, 6)
