"""How many files a process needs to have open, and raising the limit."""

import resource
from typing import Any

import pytest

from benchmark.machine.open_files import files_needed, raise_file_limit


def test_formula_at_full_size() -> None:
    """The docstring's table: 8 stages, 4 tensor-parallel ranks, 16 or 64 data-parallel parts."""
    assert files_needed((8, 1, 16, 4), gpus=True) == 2392
    assert files_needed((8, 1, 64, 4), gpus=True) == 7048


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, resource.RLIM_INFINITY), (1 << 20, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_soft_limit_becomes_the_hard_one(
    before: tuple[int, int], after: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    raise_file_limit()
    assert set_to == ([] if after is None else [after])
