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
    """Seconds by part. Moments are in milliseconds since the epoch."""

    seconds: Mapping[Kind, float]
    evaluations: Sequence[int] = ()
    """Ends of evaluations."""
    checkpoints: Sequence[int] = ()
    """Ends of checkpoints."""
    restarts: Sequence[int] = ()
    ledger: RunStatus | None = None
    """None of a log alone, whose productive time holds what the log does not tell apart."""

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def timeline(run: RecordedRun) -> Timeline:
    """Where the time of ``run`` went."""
    return _of_events(run) if any(event.key == "step" for event in run.events) else _of_log(run)


def _of_log(run: RecordedRun) -> Timeline:
    summary = run.summary
    seconds: dict[Kind, float] = {}
    if summary.init_s is not None:
        seconds["init"] = summary.init_s
    evaluations = summary.evaluation_s
    if summary.run_ms is not None:
        seconds["productive"] = summary.run_ms / 1000 - (evaluations or 0.0)
    if evaluations is not None:
        seconds["evaluation"] = evaluations
    marks = [evaluation.time_ms for evaluation in summary.evaluations]
    return Timeline(seconds, marks, (), [restart.time_ms for restart in summary.restarts])


def _of_events(run: RecordedRun) -> Timeline:
    ledger = read_status(run.path.parent, run.events)
    evaluations, checkpoints, restarts = (
        [event.time_ms for event in run.events if event.key == key] for key in ("evaluation", "checkpoint", "restart")
    )
    seconds = {kind: ms / 1000 for kind, ms in ledger.by_kind.items()}
    return Timeline(seconds, evaluations, checkpoints, restarts, ledger)
