"""What reads results: logs, run folders, packages, and the figures that follow from them.

For notebooks (docs/results.md): ``events_frame``, ``log_frame``, ``evaluations_frame`` and ``published_frame`` give
DataFrames of pandas, ``read_recorded_run`` and ``published_systems`` typed objects.
``benchmark.results_table.results_frame`` is the table of ``python -m benchmark results``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.results.frames import evaluations_frame, events_frame, log_frame, published_frame
    from benchmark.results.published_runs import published_systems
    from benchmark.results.recorded_run import read_recorded_run

__all__ = [
    "evaluations_frame",
    "events_frame",
    "log_frame",
    "published_frame",
    "published_systems",
    "read_recorded_run",
]
_PLACES = {"published_systems": "published_runs", "read_recorded_run": "recorded_run"}


def __getattr__(name: str) -> Any:
    """Imported when asked for, so that who needs one module does not pay for all."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES.get(name, 'frames')}"), name)
