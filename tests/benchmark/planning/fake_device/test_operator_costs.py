"""Kinds, shapes and bytes of operators whose cost is known by hand."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmark.planning.fake_device.operator_costs import (
    AttentionShape,
    MatmulShape,
    bytes_moved,
    kind_of,
    matmul_shape,
)

_aten: Any = torch.ops.aten


class Seen(TorchDispatchMode):
    """Bytes of the operators that run within, by kind."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moved: list[tuple[str, int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        kind = kind_of(function)
        if kind is not None:
            self.moved.append((kind, bytes_moved(function, args, kwargs, result)))
        return result


def test_bytes() -> None:
    x, half = torch.ones(10, 20), torch.ones(10, 20, dtype=torch.bfloat16)
    row, rows, numbers = torch.ones(20), torch.ones(100, 20), torch.zeros(5, dtype=torch.int64)
    with Seen() as seen:
        _ = x + half  # reads 800 + 400, writes 800
        x.add_(row)  # the row is read once
        x.mul_(row.expand(10, 20))  # and is not more if it is repeated
        x.zero_()
        x.copy_(half)
        half.float()
        x.sum(0)
        F.embedding(numbers, rows)  # 5 rows of 100, and their numbers
        torch._foreach_mul_([x, row], 2.0)
        x.view(20, 10).t()  # nothing runs
        torch.empty(4)
    assert seen.moved == [
        ("elementwise", 2000),
        ("elementwise", 800 + 80 + 800),
        ("elementwise", 800 + 80 + 800),
        ("elementwise", 800),
        ("copy", 400 + 800),
        ("copy", 400 + 800),
        ("reduction", 800 + 80),
        ("elementwise", 5 * 8 + 2 * 5 * 80),
        ("elementwise", 2 * (800 + 80)),
    ]


def test_optimizer_reads_four_and_writes_three() -> None:
    parameter = torch.zeros(1000)
    optimizer = torch.optim.AdamW([parameter], fused=True)
    parameter.grad = torch.ones(1000)
    optimizer.step()
    with Seen() as seen:
        optimizer.step()
    moved = dict(seen.moved)
    assert moved["optimizer"] == pytest.approx(7 * 4000, abs=16)  # and the step counter


@pytest.mark.parametrize(
    ("function", "args", "shape"),
    [
        (_aten.mm.default, ((3, 5), (5, 7)), MatmulShape(3, 7, 5, 1, "float32", "float32")),
        (_aten.addmm.default, ((7,), (3, 5), (5, 7)), MatmulShape(3, 7, 5, 1, "float32", "float32")),
        (_aten.bmm.default, ((2, 3, 5), (2, 5, 7)), MatmulShape(3, 7, 5, 2, "float32", "float32")),
    ],
)
def test_products(function: Any, args: tuple[tuple[int, ...], ...], shape: MatmulShape) -> None:
    tensors = [torch.ones(size) for size in args]
    result: Tensor = function(*tensors)
    assert matmul_shape(function, tensors, result) == shape
    assert shape.flops == 2 * result.numel() * 5


def test_attention_counts_the_whole_square() -> None:
    assert AttentionShape("flash", 2, 1, 3, 16, 16, 8, "bfloat16").flops == 2 * 4 * 3 * 16 * 16 * 8
