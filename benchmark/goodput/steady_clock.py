"""Times of a clock that was set while a run went on, made fit to be added up."""

from collections.abc import Sequence
from dataclasses import dataclass

FIRST_MS, LAST_MS = 10**12, 4 * 10**12
"""2001 and 2096, milliseconds since the epoch. A time beyond them is not one, but a damaged file."""
TOLD_MS = 1000
"""Jumps of a second and more are worth a word; clocks of a cluster differ by a few milliseconds."""


@dataclass(frozen=True)
class Jump:
    """The clock went back between two events."""

    at_ms: int
    """By the clock, after the jump."""
    back_ms: int


@dataclass(frozen=True)
class SteadyTimes:
    """Milliseconds that never go back, one for each time given."""

    times_ms: Sequence[int]
    """The first is what the clock said. Where the clock went back, no time passed, and all that follows is later than
    the clock said by the length of the jump."""
    late_ms: Sequence[int]
    """By how much, for what other files have of the time around each of them."""
    jumps: Sequence[Jump]


def steady(given_ms: Sequence[int]) -> SteadyTimes:
    """Straighten times that should rise.

    A single time out of its place is put between its neighbours. A jump forward cannot be told from time in which
    nothing happened.
    """
    placed = list(given_ms)
    for place in range(1, len(placed) - 1):
        before, after = placed[place - 1], placed[place + 1]
        if before <= after:
            placed[place] = min(max(placed[place], before), after)
    late, jumps = 0, []
    late_ms: list[int] = []
    for place, here in enumerate(placed):
        back_ms = placed[place - 1] - here if place else 0
        if back_ms > 0:
            late += back_ms
            jumps.append(Jump(here, back_ms))
        late_ms.append(late)
    times_ms = [here + late for here, late in zip(placed, late_ms, strict=True)]
    return SteadyTimes(times_ms, late_ms, jumps)


def as_milliseconds(seconds: object) -> int | None:
    """A time of a file, in milliseconds; None for what is no time of this century."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not FIRST_MS <= seconds * 1000 <= LAST_MS:
        return None
    return round(seconds * 1000)
