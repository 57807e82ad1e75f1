"""Passes that take turns while they wait for collectives, and the collectives of two ranks."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from model.decoder_sizes import CopyEngines
from model.passes.tensor_group import Passing, Pending, TensorGroup, result_of, run_together, together
from tests.benchmark.tiny import in_processes
from tests.model.passes.on_mesh import mesh_of, one_process

RANKS = 2


class _Work:
    """A collective that is there when it has been waited for."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log, self._name = log, name

    def wait(self) -> None:
        self._log.append(f"{self._name} is there")


def _pass(name: str, collectives: int, log: list[str]) -> Passing[str]:
    for number in range(collectives):
        log.append(f"{name} begins {number}")
        result = yield from result_of(Pending(torch.tensor(number), _Work(log, f"{name} {number}")))
        assert result.item() == number
    log.append(f"{name} ends")
    return f"result of {name}"


def test_one_computes_while_the_other_waits() -> None:
    log: list[str] = []
    assert run_together(_pass("a", 2, log), _pass("b", 1, log)) == ["result of a", "result of b"]
    assert log == [
        "a begins 0",
        "b begins 0",
        "a 0 is there",
        "a begins 1",
        "b 0 is there",
        "b ends",
        "a 1 is there",
        "a ends",
    ]


def test_passes_that_are_one_take_turns_inside_it() -> None:
    """And, as one, with others: an evaluation's slot is two forward passes."""
    log: list[str] = []
    assert run_together() == list(together()) == []  # nothing to wait for

    def two() -> Passing[list[str]]:
        return (yield from together(_pass("a", 1, log), _pass("b", 1, log)))

    assert run_together(two(), _pass("c", 1, log)) == [["result of a", "result of b"], "result of c"]
    assert [line for line in log if "begins" in line] == ["a begins 0", "b begins 0", "c begins 0"]
    assert log.index("b begins 0") < log.index("a 0 is there") < log.index("a ends") < log.index("b 0 is there")


def test_what_a_pass_raises_is_raised() -> None:
    log: list[str] = []

    def failing() -> Passing[None]:
        yield from result_of(Pending(torch.zeros(1), _Work(log, "failing")))
        raise ValueError("a failure between collectives")

    with pytest.raises(ValueError, match="between collectives"):
        run_together(_pass("a", 3, log), failing())
    assert "a ends" not in log


def test_a_group_of_one_sends_nothing() -> None:
    x = torch.arange(6.0).view(3, 2)
    with one_process() as mesh:
        groups = [TensorGroup(), TensorGroup(mesh["tensor"])]
    for group in groups:
        assert (group.size, group.rank, group.group) == (1, 0, None)
        for pending in (group.gather(x), group.reduce_scatter(x)):
            assert pending.work is None
            assert pending.result is x


def _copied_by_gloo(called: list[str]) -> Any:
    """PyTorch's low-contention collectives on a CPU, until this library is let go of: results that are there once they
    have been waited for."""
    functional: Any = torch.ops._c10d_functional

    def gather(part: Tensor, group: str) -> Tensor:
        called.append("gather")
        return functional.all_gather_into_tensor(part, RANKS, group)  # type: ignore[no-any-return]

    def reduce_scatter(terms: Tensor, operation: str, group: str) -> Tensor:
        called.append(operation)
        return functional.reduce_scatter_tensor(terms, operation, RANKS, group)  # type: ignore[no-any-return]

    library: Any = torch.library.Library("symm_mem", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("_low_contention_all_gather", gather, "CPU")
    library.impl("_low_contention_reduce_scatter", reduce_scatter, "CPU")
    return library


def _collectives(copy_engines: CopyEngines) -> dict[str, Any]:
    """What each rank gets, of rows that say whose they are."""
    torch.set_num_threads(1)
    called: list[str] = []
    dist.init_process_group("gloo")
    mesh = mesh_of(tensor=RANKS)["tensor"]
    group = TensorGroup(mesh, copy_engines)
    library = _copied_by_gloo(called)
    own = torch.arange(6.0).view(3, 2) + 10 * group.rank
    # Rows with columns between them, as views of a larger tensor have them.
    strided = torch.stack([own, own], dim=2)[:, :, 0]
    terms = torch.arange(8.0).view(4, 2) * (group.rank + 1)
    order: list[str] = []

    def passing(name: str) -> Passing[tuple[Tensor, Tensor]]:
        whole = yield from result_of(group.gather(strided))
        order.append(name)
        part = yield from result_of(group.reduce_scatter(terms))
        order.append(name)
        return whole, part

    results = run_together(passing("a"), passing("b"))
    library._destroy()
    return {
        "called": called,
        "rank": (group.rank, group.size),
        "gathered": [whole.tolist() for whole, _ in results],
        "scattered": [part.tolist() for _, part in results],
        "order": order,
        "terms": terms.tolist(),
        "own": strided.tolist(),
    }


COPIED: dict[CopyEngines, list[str]] = {"none": [], "gathers": ["gather"] * 2, "all": ["gather"] * 2 + ["sum"] * 2}
"""Operators that two passes call, by what copy engines carry."""


@pytest.mark.parametrize("copy_engines", COPIED)
def test_two_ranks_gather_and_sum_rows_in_the_same_turns(copy_engines: CopyEngines) -> None:
    gathered = torch.cat([torch.arange(6.0).view(3, 2), torch.arange(6.0).view(3, 2) + 10]).tolist()
    terms = torch.arange(8.0).view(4, 2)
    for rank, found in enumerate(in_processes(RANKS, _collectives, copy_engines)):
        own = (3 * terms).tolist()[2 * rank : 2 * rank + 2]
        assert (
            found
            == {
                "called": COPIED[copy_engines],
                "rank": (rank, RANKS),
                "gathered": [gathered, gathered],
                "scattered": [own, own],
                "order": ["a", "b", "a", "b"],
                "terms": (terms * (rank + 1)).tolist(),  # what was sent is not changed
                "own": gathered[3 * rank :][:3],
            }
        )
