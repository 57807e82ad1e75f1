"""Where the time of a run went.

A run with ``events.jsonl`` tells all of it, over all its attempts (benchmark/status/). A published log tells init, and
evaluations where they have a start and a stop; the rest is training with all that goes with it. A part that cannot be
told is not among the parts, rather than zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmark.results.recorded_run import RecordedRun
from benchmark.status.run_status import RunStatus, read_status
from benchmark.status.time_kinds import Kind


@dataclass(frozen=True)
class Timeline:
    """The time of one run."""

    seconds: Mapping[Kind, float]
    """By part."""
    marks: Sequence[tuple[str, float]]
    """Ends of evaluations and checkpoints, and restarts: the kind, and minutes since run_start."""
    ledger: RunStatus | None = None
    """None of a log alone, whose productive time holds what the log does not tell apart."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def timeline(run: RecordedRun) -> Timeline:
    """Return where the time of ``run`` went."""
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
