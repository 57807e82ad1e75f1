"""The places where passes wait for other processes, by the thing they wait for.

Each wait has a function of its own, for its name is what the listing of a hanging process's stacks shows, and what its
watchdog tells (benchmark/training/liveness/watchdog.py). ``work`` is what a collective returned that was begun earlier.
"""

from collections.abc import Iterable
from typing import Any


def tensor_parallel_collective(work: Any) -> None:
    work.wait()


def data_parallel_collective(work: Any) -> None:
    work.wait()


def pipeline_exchange(works: Iterable[Any]) -> None:
    for work in works:
        work.wait()
