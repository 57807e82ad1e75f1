"""What a replay found, for people and for scripts."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.evidence.mismatch import Mismatch, printable

MOST_LINES = 40


@dataclass(frozen=True)
class ReplayResult:
    run_dir: str
    first: int
    """Steps that were asked for ..."""
    last: int
    start: int | None
    """... and those of the checkpoint it started from; None: nothing was trained."""
    compared_steps: int
    exact: bool
    """Compared to the bit; else with tolerances, or only samples and tokens."""
    why_not_exact: str | None
    """What differs from the run's machinery."""
    deviations: Sequence[Mismatch]
    notes: Sequence[str]
    """What a reviewer should know, though it is no deviation."""
    largest_distances: dict[str, float]
    """Of loss, gradient norm, weights and log perplexity, in the units of the tolerances."""
    recorded_step_s: float | None
    """Median over the stretch."""
    replayed_step_s: float | None

    @property
    def holds(self) -> bool:
        return not self.deviations


def format_replay(result: ReplayResult) -> str:
    """In a few lines; the deviations after them."""
    if result.start is None:
        how = f"samples, tokens and learning rates of {result.compared_steps} steps"
    else:
        of = f"the checkpoint after {result.start} steps" if result.start else "the initial checkpoint"
        how = f"{result.compared_steps} steps again from {of}, {printable(_way(result))}"
    verdict = "every link holds" if result.holds else f"{len(result.deviations)} deviations"
    lines = [f"{result.run_dir}: steps {result.first} to {result.last}: {how}: {verdict}"]
    if result.largest_distances and not result.exact:
        apart = ", ".join(f"{name} {value:.2g}" for name, value in result.largest_distances.items())
        lines.append(f"  farthest apart: {apart}")
    if result.recorded_step_s is not None and result.replayed_step_s is not None:
        lines.append(f"  a step: {result.recorded_step_s:.3g} s recorded, {result.replayed_step_s:.3g} s replayed")
    lines += [f"  note: {printable(note)}" for note in result.notes]
    lines += [f"  {deviation.line()}" for deviation in result.deviations[:MOST_LINES]]
    if len(result.deviations) > MOST_LINES:
        lines.append(f"  and {len(result.deviations) - MOST_LINES} more")
    return "\n".join(lines)


def _way(result: ReplayResult) -> str:
    return "to the bit" if result.exact else f"with tolerances ({result.why_not_exact})"
