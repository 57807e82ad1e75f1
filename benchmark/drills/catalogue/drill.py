"""What a drill is: a run with a fault, and what must come of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmark.drills.faults import Damage, Fault
from benchmark.drills.practice import STEPS

Outcome = Literal["healed", "stopped", "noted"]
"""healed: the run came to its end without a person, equal to the bit to one that nothing disturbed. stopped: it ended,
and said why. noted: it came to its end and said what happened, and what it learned is another thing."""
Start = Literal["forked", "torchrun", "none"]
"""How the processes start: as in forked_ranks.py; as the rehearsal's; not at all, for what is found before a job."""


@dataclass(frozen=True)
class Drill:
    """A run with a fault, and what must come of it."""

    name: str
    what: str
    """For people, in a line."""
    covers: str
    """The incident that it repeats; empty where none is known to us."""
    faults: tuple[Fault, ...] = ()
    damage: tuple[Damage, ...] = ()
    outcome: Outcome = "healed"
    words: tuple[str, ...] = ()
    """Regular expressions: each must be found in what the run said."""
    attempts: int | None = None
    """How many there must be; None: that depends on the moment."""
    lost_saves: int = 1
    """Save intervals that may be lost."""
    status: int | None = None
    """Of the end, where it is stopped."""
    layout: str = "2 processes"
    steps: int = STEPS
    """Of the run. Detectors that learn what is usual need some thirty."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the run (RunConfig)."""
    first_options: Mapping[str, Any] = field(default_factory=dict)
    """Of the first attempt alone."""
    own_limits: bool = False
    """The system's limits for silence instead of the drills' short ones."""
    continued: bool = False
    """After the run has stopped a person starts it again; what comes then counts."""
    may_not_strike: bool = False
    """Whether a fault strikes depends on what the others did."""
    losses_known: bool = True
    """events.jsonl has every step."""
    start: Start = "forked"
    most_detection_s: float | None = None
    """From the fault to the first incident."""
