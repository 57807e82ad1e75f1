"""The waits of passes for other ranks, by kind.

Each kind of wait has a function of its own: the stacks of a hanging process, and its watchdog
(benchmark/training/liveness/watchdog.py), show the function's name. ``work``: returned by an earlier collective.
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
