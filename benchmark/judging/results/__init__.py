"""Read results: logs, run folders and packages, and the figures that follow from them.

Notebooks (docs/results.md) can use these functions, which return DataFrames of pandas: ``events_frame``, ``log_frame``,
``evaluations_frame``, ``runs_frame``, ``systems_frame``, ``published_frame``. ``read_recorded_run`` gives a run as a
typed object.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.judging.results.frames import (
        evaluations_frame,
        events_frame,
        log_frame,
        published_frame,
        runs_frame,
        systems_frame,
    )
    from benchmark.judging.results.recorded_run import read_recorded_run

__all__ = [
    "evaluations_frame",
    "events_frame",
    "log_frame",
    "published_frame",
    "read_recorded_run",
    "runs_frame",
    "systems_frame",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: pandas takes half a second, and most commands do without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'recorded_run' if name == 'read_recorded_run' else 'frames'}"), name)
