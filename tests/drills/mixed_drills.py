"""Two or three faults in one run, drawn at random by a seed: whatever comes together, the run must heal."""

import dataclasses
from collections.abc import Iterator, Sequence
from random import Random

from tests.drills.drill_table import DRILLS, Drill
from tests.drills.faults import Damage, Fault
from tests.drills.practice import SAVE_INTERVAL, STEPS

STEP = (1, STEPS - 2)
USUAL = Drill("", "")
MUST_BE_USUAL = ("outcome", "layout", "options", "first_options", "own_limits", "continued", "losses_known")


def _pool() -> Iterator[Fault | Damage]:
    """Yield the faults that a run heals from, at any step, of the drills that need no other run than the usual one."""
    for drill in DRILLS.values():
        if all(getattr(drill, name) == getattr(USUAL, name) for name in MUST_BE_USUAL):
            yield from drill.damage
            for fault in drill.faults:
                yield dataclasses.replace(fault, steps=STEP if fault.steps[0] >= 0 else fault.steps)


POOL = tuple(_pool())
ENDING = frozenset({"kill", "stop", "hold the interpreter", "deadlock", "raise", "out of memory", "ask to stop"})
"""They end the attempt."""


def mixed(number: int, seed: int) -> Drill:
    """Drill ``number`` of a seed."""
    random = Random(f"{seed} {number}")
    chosen = random.sample(POOL, random.choice([2, 3]))
    faults = _in_attempts([entry for entry in chosen if isinstance(entry, Fault)], random)
    damage = [Damage(entry.kind, random.choice([2, 2, 3])) for entry in chosen if isinstance(entry, Damage)]
    if damage and not any(fault.act in ENDING for fault in faults):
        faults.append(Fault("kill", "passes", STEP))
    return Drill(
        name=f"fuzz-{seed}-{number}",
        what="faults drawn at random",
        faults=tuple(faults),
        damage=tuple(damage),
        lost_saves=STEPS // SAVE_INTERVAL
        if damage or any(fault.act == "delete checkpoints" for fault in faults)
        else 2,
        may_not_strike=True,
    )


def _in_attempts(faults: Sequence[Fault], random: Random) -> list[Fault]:
    """After one that ends its attempt, the next mostly strikes in the attempt that follows.

    The amount of an error is its number: the same error twice at one step would rightly end the run.
    """
    found, attempt = [], 1
    for number, fault in enumerate(faults, start=1):
        amount = float(number) if fault.act == "raise" else fault.amount
        found.append(dataclasses.replace(fault, attempt=attempt, amount=amount))
        if fault.act in ENDING and random.random() < 0.75:
            attempt += 1
    return found
