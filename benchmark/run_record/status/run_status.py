"""The status of a run: its state, its speed, its attempts, and how its time was spent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from benchmark.run_record.status.wall_time import MEANINGS, TimeKind, TimeMarks
from foundation.plain_text import shortened
from foundation.sizes import duration, significant

GOING_ON = ("starting", "running", "starting again", "waiting")
"""States of a run that goes on without a person."""
NOT_ENDED = (*GOING_ON, "silent", "given up", "stopped")
"""States of a run that has not ended by itself; any other state is the status with which it ended."""
MOST_LETTERS = 200
"""Most characters of the text about an attempt."""


@dataclass(frozen=True)
class AttemptRow:
    """One attempt. Times are milliseconds; texts are printable."""

    name: str
    begun_ms: float | None
    """Time of the attempt's first trace since the epoch; None if the attempt took no time."""
    ended_ms: float | None
    """Time of its last trace since the epoch."""
    kind: str
    """End of the attempt: "finished"; "interrupted" if it was saved and stopped; the kind of its first incident.
    "failed": no incident tells the cause. "unknown": nobody recorded the end. "running": the last attempt has none."""
    where: str
    """Rank, host and phase of the first incident."""
    reason: str
    """Text of the launcher's line, or of the first incident."""
    action: str
    """The launcher's decision; empty if it made none."""
    steps: int
    steps_lost: int
    """Steps among them that were done again later, or are in no checkpoint."""
    by_kind: Mapping[TimeKind, float]
    """Milliseconds of the attempt, and of the time since the attempt before, by kind."""
    cost_ms: float
    """Cost of the attempt's end: its own lost time, hang and stop, and all time until the next attempt was ready,
    without its queue."""

    @property
    def failed(self) -> bool:
        return self.kind not in ("finished", "interrupted", "running")


@dataclass(frozen=True)
class RunStatus:
    """The status of a run. Fields that its files do not tell are None."""

    run_dir: Path
    state: str
    """One of: starting, running, silent, starting again, waiting (in the queue), given up, stopped (by a person), or
    the status with which the run has ended, such as success."""
    step: int | None
    """Optimizer steps since the initial checkpoint."""
    steps: int | None
    """Steps at which the run expects the target, or else the most steps that there may be."""
    loss: float | None
    log_perplexity: float | None
    """Log perplexity of the last evaluation."""
    step_s: float | None
    """Median seconds of the last steps."""
    tokens_per_s: float | None
    """Tokens per second of such a step."""
    mfu: float | None
    """Share of the peak in the run's number format."""
    precision: str | None
    """Name of that format."""
    checkpoint: int | None
    """Steps of the newest whole checkpoint."""
    expected_end_s: float | None
    """Seconds since the epoch at which the run expects the target."""
    heard_s: float | None
    """Seconds since the epoch of the last event."""
    attempts: Sequence[AttemptRow]
    devices: int | None
    marks: TimeMarks
    """The time of the run without gaps, from its first trace to its last."""
    steps_kept: int
    steps_lost: int
    steps_skipped: int
    remarks: Sequence[str]
    """Remarks that a reader has to know to judge the figures."""

    @property
    def goes_on(self) -> bool:
        return self.state in GOING_ON

    @property
    def has_ended(self) -> bool:
        """Return whether the run has ended by itself, so that nothing in its folder changes any more."""
        return self.state not in NOT_ENDED

    @cached_property
    def by_kind(self) -> dict[TimeKind, float]:
        """Milliseconds of each kind, in the order of MEANINGS; they add up to ``whole_ms``."""
        return {kind: sum(row.by_kind[kind] for row in self.attempts) for kind in MEANINGS}

    @property
    def begun_ms(self) -> float:
        """Time of its first trace since the epoch."""
        return self.marks[0].time_ms if self.marks else 0.0

    @property
    def whole_ms(self) -> float:
        return sum(self.by_kind.values())

    @property
    def goodput(self) -> float | None:
        """Productive time divided by the whole; None if there is no time at all."""
        return self.by_kind["productive"] / self.whole_ms if self.whole_ms else None

    @property
    def goodput_without_queue(self) -> float | None:
        without_queue_ms = self.whole_ms - self.by_kind["queue"]
        return self.by_kind["productive"] / without_queue_ms if without_queue_ms > 0 else None

    @property
    def device_hours_lost(self) -> float | None:
        """Hours that the ends of all attempts cost, times the devices that stood still."""
        return device_hours(sum(row.cost_ms for row in self.attempts), self.devices)


def device_hours(ms: float, devices: int | None) -> float | None:
    return None if devices is None else ms * devices / 3_600_000


def as_utc(time_ms: float) -> str:
    """Return a time for people: "2026-03-01 12:00:07Z"."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def share(part: float | None) -> str:
    return "-" if part is None else f"{part:.1%}"


def headline(run: RunStatus) -> str:
    """Describe the run's goodput in a sentence."""
    queue = "" if not run.by_kind["queue"] else f", {share(run.goodput_without_queue)} without the queue"
    return f"goodput {share(run.goodput)} of {duration(run.whole_ms / 1000)}{queue}"


def totals(run: RunStatus) -> str:
    """Describe all losses of the run in a sentence."""
    attempts, hours = len(run.attempts), run.device_hours_lost
    skipped = f", {run.steps_skipped:,} skipped" if run.steps_skipped else ""
    lost = "" if not hours else f"; {significant(hours, 3)} device hours lost on {run.devices:,} devices"
    plural = "" if attempts == 1 else "s"
    return f"{attempts} attempt{plural}, {run.steps_kept:,} steps kept, {run.steps_lost:,} lost{skipped}{lost}"


def words(row: AttemptRow) -> str:
    """Return the text about the end of an attempt."""
    return shortened(row.reason, MOST_LETTERS)
