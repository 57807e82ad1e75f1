"""Divide the time of a run into its parts.

A run with ``events.jsonl`` tells all parts, over all its attempts (benchmark/status/). A published log tells the
initialisation, and evaluations that have a start and a stop; the rest counts as training. A part that is not known is
left out instead of shown as zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmark.results.recorded_run import RecordedRun
from benchmark.status.run_status import RunStatus, read_status
from benchmark.status.wall_time import Kind


@dataclass(frozen=True)
class Timeline:
    """The time of one run."""

    seconds: Mapping[Kind, float]
    """Seconds by part."""
    marks: Sequence[tuple[str, float]]
    """Ends of evaluations and checkpoints, and restarts: the kind of each, and minutes since run_start."""
    ledger: RunStatus | None = None
    """Ledger of the run; None for a log alone, whose productive time includes all parts that the log does not
    separate."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def timeline(run: RecordedRun) -> Timeline:
    """Return the parts of the time of ``run``."""
    summary, start = run.summary, run.summary.run_start_ms
    if any(event.key == "step" for event in run.events):
        ledger = read_status(run.path.parent, run.events)
        seconds = {kind: ms / 1000 for kind, ms in ledger.by_kind.items()}
        moments = [
            (event.key, event.time_ms) for event in run.events if event.key in ("evaluation", "checkpoint", "restart")
        ]
    else:
        ledger, told = None, {"init": summary.init_s, "evaluation": summary.evaluation_s}
        if summary.run_ms is not None:
            told["productive"] = summary.run_ms / 1000 - (summary.evaluation_s or 0.0)
        parts: tuple[Kind, ...] = ("init", "productive", "evaluation")
        seconds = {kind: value for kind in parts if (value := told.get(kind)) is not None}
        moments = [("evaluation", one.time_ms) for one in summary.evaluations]
        moments += [("restart", one.time_ms) for one in summary.restarts]
    return Timeline(seconds, [(kind, (ms - start) / 60_000) for kind, ms in moments if start is not None], ledger)
