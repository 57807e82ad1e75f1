"""Many short tasks in threads, handed over in groups: a thread asks a disk for a file sooner than it gets a task."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LARGEST_GROUP = 64
GROUPS_PER_THREAD = 4
"""Number of groups, at least, among which a slow task is one: no thread waits long for another at the end."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def grouped_map(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield ``function(item)`` for all items in their order; what the function raises is raised at its group."""
    tasks = list(items)
    size = max(1, min(LARGEST_GROUP, len(tasks) // (GROUPS_PER_THREAD * threads)))
    groups = [tasks[start : start + size] for start in range(0, len(tasks), size)]
    with ThreadPoolExecutor(threads) as pool:
        for results in pool.map(lambda group: [function(item) for item in group], groups):
            yield from results
