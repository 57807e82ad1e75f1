"""Faults as data: what happens on which process, when.

A fault strikes at a *moment*: when a process enters a phase of the run (benchmark/supervision/phases.py), or when the
run calls one of the functions named in seams.py. Its step, process and delay may be drawn at random, by a seed.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

Act = Literal[
    "kill", "stop", "stop for a while", "raise", "out of memory", "hold the interpreter", "deadlock", "slow",
    "lose the watchdog", "clock jump", "ask to stop", "nan", "inf", "spike", "flip a weight", "disk full", "read-only",
    "sink fails", "sink hangs", "touch save", "touch exit", "delete checkpoints",
]  # fmt: skip
"""What a process of the run does to itself; each is a function in acts.py."""
DamageKind = Literal["flip newest", "cut newest", "delete newest", "delete all", "flip data", "remove exit"]
"""What is done to files while no process runs (damage.py)."""
Rank = int | Literal["any", "all"]


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong in a process."""

    act: Act
    at: str
    """A phase, or "call:NAME" of a function in seams.py."""
    steps: tuple[int, int] = (9, 15)
    """First and last of the steps after which it may strike; -1 before the state is there."""
    rank: Rank = "any"
    attempt: int | None = 1
    """Which attempt, counted from 1; None: every one."""
    amount: float = 0.0
    """Of what the act is about: seconds, or times."""
    delay_s: float = 0.0
    """It strikes up to so long after the moment."""


@dataclass(frozen=True)
class Damage:
    """Something that happens to files between two attempts."""

    kind: DamageKind
    before_attempt: int = 2


def drawn(fault: Fault, random: Random, ranks: int) -> Fault:
    """The fault with step, process and delay chosen."""
    step = random.randint(*fault.steps)
    rank = random.randrange(ranks) if fault.rank == "any" else fault.rank
    return dataclasses.replace(fault, steps=(step, step), rank=rank, delay_s=round(fault.delay_s * random.random(), 3))


def strikes(fault: Fault, *, rank: int, attempt: int) -> bool:
    """Whether a drawn fault is about this process of this attempt."""
    return fault.rank in (rank, "all") and fault.attempt in (attempt, None)


def words_for(faults: Sequence[Fault | Damage]) -> str:
    """The list of drawn faults, so that it can be read and repeated."""
    return "; ".join(_words(fault) for fault in faults)


def _words(fault: Fault | Damage) -> str:
    if isinstance(fault, Damage):
        return f"{fault.kind} before attempt {fault.before_attempt}"
    who = "all ranks" if fault.rank == "all" else f"rank {fault.rank}"
    when = f"attempt {fault.attempt}" if fault.attempt is not None else "every attempt"
    later = f" + {fault.delay_s * 1000:.0f} ms" if fault.delay_s else ""
    much = f" {fault.amount:g}" if fault.amount else ""
    return f"{fault.act}{much} on {who} at {fault.at} after step {fault.steps[0]}{later}, {when}"


def as_data(fault: Fault | Damage) -> dict[str, Any]:
    return dataclasses.asdict(fault)
