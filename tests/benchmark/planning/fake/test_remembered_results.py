"""Results made again from memory: the same as PyTorch's own, and told apart where they differ."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from benchmark.planning.fake.remembered_results import RememberedResults
from tests.benchmark.planning.fake.on_fake_gpu import on_fake_gpu

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
        kinds = [type(OPERATORS[name](x)) for _ in range(4)]  # worked out, found by PyTorch, then made here
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


def test_what_it_does_not_know() -> None:
    """Arguments of other kinds, and results that are not plain tensors, are left to PyTorch."""
    with on_fake_gpu() as tracker:
        assert tracker.gpu is not None
        memory = RememberedResults(tracker.gpu.tensors)
        x = torch.zeros(3, device="cuda")
        other = RememberedResults(torch._subclasses.FakeTensorMode())
        for known, value in ((memory, object()), (other, x)):
            assert known.question(_aten.neg.default, (value,), {}) is None
        question = memory.question(_aten.neg.default, (x,), {})
        assert question is not None and not memory.knows(question)
        for result in (3.5, torch.zeros(2, device="cuda", requires_grad=True), [x, "text"]):
            memory.keep(question, _aten.neg.default, (x,), result)
            assert not memory.knows(question)
        memory.keep(question, _aten.neg.default, (x,), -x)
        result, new = memory.answer(question, (x,))
        assert type(result) is FakeTensor and new == [result]


def test_questions_are_told_apart() -> None:
    with on_fake_gpu() as tracker:
        assert tracker.gpu is not None
        memory = RememberedResults(tracker.gpu.tensors)
        x = torch.zeros(4, 6, device="cuda")
        asked: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
            (_aten.add.Tensor, (x, 1), {}),
            (_aten.add.Tensor, (x, 1.0), {}),
            (_aten.add.Tensor, (x, True), {}),
            (_aten.sub.Tensor, (x, 1), {}),
            (_aten.add.Tensor, (x, 1), {"alpha": 1}),
            (_aten.add.Tensor, (x.t(), 1), {}),
            (_aten.add.Tensor, (x[1:], 1), {}),
            (_aten.add.Tensor, (x.double(), 1), {}),
            (_aten.add.Tensor, (x.to("cpu"), 1), {}),
            (_aten.stack.default, ([x, x],), {}),
            (_aten.stack.default, ((x, x),), {}),
            (_aten.stack.default, ([x, x, x],), {}),
        ]
        questions = [memory.question(*one) for one in asked]
        assert None not in questions and len(set(questions)) == len(questions)
