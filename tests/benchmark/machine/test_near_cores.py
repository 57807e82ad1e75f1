"""Binding a process to the cores near its GPU."""

import os
from pathlib import Path

import pytest

from benchmark.machine.near_cores import cores_of, keep_near

ADDRESS = "0000:1b:00.0"


def test_lists_of_cores() -> None:
    assert cores_of("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert cores_of("\n") == frozenset()
    with pytest.raises(ValueError, match="x"):
        cores_of("x")


@pytest.mark.parametrize(
    ("near", "bound"),
    [("0-1", {1}), ("1-3", None), ("7", None), ("", None), ("damaged", None), (None, None)],
)
def test_only_near_cores_that_are_allowed(
    near: str | None, bound: set[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if near is not None:
        (tmp_path / ADDRESS).mkdir()
        (tmp_path / ADDRESS / "local_cpulist").write_text(near)
    set_to: list[frozenset[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: set_to.append(cores))
    keep_near(ADDRESS, tmp_path)
    assert set_to == ([] if bound is None else [bound])
