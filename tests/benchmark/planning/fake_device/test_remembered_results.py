"""Results on a GPU that is not there: the same when they are made again, and told apart where they differ."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.benchmark.planning.fake_device.on_fake_gpu import on_fake_gpu

_aten: Any = torch.ops.aten
Made = Callable[[Tensor], Any]

OPERATORS: dict[str, Made] = {
    "new memory": lambda x: x + 1,
    "another dtype": lambda x: x.to(torch.bfloat16),
    "transposed": lambda x: x.t(),
    "a view with an offset": lambda x: x[1:],
    "views in a list": lambda x: list(x.unbind(0)),
    "views in a tuple": lambda x: x.chunk(2),
    "repeated": lambda x: x.expand(3, 4, 6),
    "several results": lambda x: torch.native_layer_norm(x, [6], None, None, 1e-5),
    "on the host": lambda x: x.to("cpu", non_blocking=True),
    "made of nothing": lambda x: torch.empty(5, 7, device="cuda"),
    "like another": lambda x: torch.empty_like(x, dtype=torch.float64),
    "in place": lambda x: x.add_(1),
    "into another": lambda x: torch.add(x, 1, out=x),
    "in inference mode": lambda x: torch.inference_mode()(lambda: x + 1)(),
    "in FP32": lambda x: torch.mm(x.bfloat16(), x.bfloat16().t(), out_dtype=torch.float32),
}


def _seen(result: Any, given: Tensor) -> list[tuple[Any, ...]]:
    """All that later operators and the counting of memory ask of tensors."""
    tensors = [result] if isinstance(result, Tensor) else [one for one in result if isinstance(one, Tensor)]
    return [
        (
            tuple(one.shape),
            one.stride(),
            one.storage_offset(),
            one.dtype,
            str(one.device),
            one.requires_grad,
            one.untyped_storage().nbytes(),
            one.untyped_storage()._cdata == given.untyped_storage()._cdata,
            torch._C._dispatch_keys(one).raw_repr(),
            type(one),
        )
        for one in tensors
    ]


@pytest.mark.parametrize("name", OPERATORS)
def test_made_again_as_the_first_time(name: str) -> None:
    with on_fake_gpu():
        x = torch.zeros(4, 6, device="cuda")
        kinds = [type(OPERATORS[name](x)) for _ in range(3)]  # worked out, then made again
        seen = [_seen(OPERATORS[name](x), x) for _ in range(2)]
        first = _seen(OPERATORS[name](torch.zeros(4, 6, device="cuda")), x)
        assert len(set(kinds)) == 1 and seen[0] == seen[1]
        assert [one[:7] for one in first] == [one[:7] for one in seen[0]]


def test_each_result_has_memory_of_its_own() -> None:
    with on_fake_gpu() as tracker:
        x = torch.zeros(1024, 1024, device="cuda")
        before = tracker.live_bytes
        kept = [x + 1 for _ in range(5)]
        assert tracker.live_bytes - before == 5 * 4 * 2**20
        del kept[1:]
        assert tracker.live_bytes - before == 4 * 2**20
        views = [kept[0].t() for _ in range(5)]
        assert tracker.live_bytes - before == 4 * 2**20
        del kept
        assert tracker.live_bytes - before == 4 * 2**20 and len(views) == 5
        del views
        assert tracker.live_bytes == before


def test_products_into_fp32() -> None:
    with on_fake_gpu() as tracker:
        left = torch.zeros(6, 8, device="cuda", dtype=torch.bfloat16)
        right = torch.zeros(6, 5, device="cuda", dtype=torch.bfloat16)
        sums = torch.zeros(8, 5, device="cuda")
        assert _aten.addmm.dtype_out(sums, left.t(), right, torch.float32, out=sums) is sums
        torch.addmm(sums, left.t(), right, out_dtype=torch.float32, out=sums)
        made = torch.mm(left.t(), right, out_dtype=torch.float32)
        assert (made.shape, made.dtype, made.device.type) == ((8, 5), torch.float32, "cuda")
        assert sum(calls * shape.flops for shape, calls in tracker.counts.matmuls.items()) == 3 * 2 * 6 * 8 * 5
        assert {shape.out_dtype for shape in tracker.counts.matmuls} == {"float32"}
        with pytest.raises(RuntimeError):
            _aten.addmm.dtype_out(sums.t(), left.t(), right, torch.float32, out=sums.t())


def test_results_that_were_made_before_are_told_apart() -> None:
    """Everything that changes a result must be told apart."""
    with on_fake_gpu():
        x = torch.ones(4, 6, device="cuda")
        for _ in range(2):  # worked out, then made again
            assert (x + 1).dtype == (x + True).dtype == torch.float32
            assert (x.long() + 1).dtype == torch.int64
            assert (x.long() + 1.0).dtype == torch.float32
            assert (x + x.double()).dtype == torch.float64
            assert (x.t() + 1).stride() == (1, 6)
            assert (x + 1).stride() == (6, 1)
            assert x[1:].storage_offset() == 6 and x[2:].storage_offset() == 12
            assert x.expand(3, 4, 6).stride() == (0, 6, 1)
            assert torch.stack([x, x]).shape == (2, 4, 6) and torch.stack([x, x, x]).shape == (3, 4, 6)
            assert x.sum(0).shape == (6,) and x.sum((0, 1)).shape == () and x.sum(0, keepdim=True).shape == (1, 6)
            assert (x.cpu() + 1).device.type == "cpu" and (x + 1).device.type == "cuda"
            assert x.to(torch.bfloat16).dtype == torch.bfloat16 and x.to(torch.float16).dtype == torch.float16
            with torch.inference_mode():
                assert (x + 1).is_inference()
            assert not (x + 1).is_inference()
