"""Waits of passes: they wait, and the stacks of a process that hangs in one say in which."""

import faulthandler
from pathlib import Path
from typing import Any

import pytest

from benchmark.training.liveness.watchdog import waits_in
from model.passes.waits import data_parallel_collective, pipeline_exchange, tensor_parallel_collective


class ListsStacks:
    """Work that, when it is waited for, writes the listing that a watchdog would get."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def wait(self) -> None:
        with self._path.open("w") as file:
            faulthandler.dump_traceback(file)


@pytest.mark.parametrize(
    ("wait", "several"),
    [(tensor_parallel_collective, False), (data_parallel_collective, False), (pipeline_exchange, True)],
)
def test_stacks_name_what_is_waited_for(wait: Any, several: bool, tmp_path: Path) -> None:
    work = ListsStacks(tmp_path / "stacks.txt")
    wait([work, work] if several else work)
    assert waits_in((tmp_path / "stacks.txt").read_text()) == wait.__name__
