"""Two or three faults in one run, drawn at random by a seed: whatever comes together, the run must heal."""

import dataclasses
from collections.abc import Sequence
from random import Random

from tests.drills.drill_table import Drill
from tests.drills.faults import Damage, Fault
from tests.drills.practice import EVAL_INTERVAL, SAVE_INTERVAL, STEPS

STEP = (1, STEPS - 2)
SAVING = (SAVE_INTERVAL - 1, STEPS - SAVE_INTERVAL - 1)
EVALUATING = (EVAL_INTERVAL - 1, STEPS - EVAL_INTERVAL - 1)
POOL: tuple[Fault | Damage, ...] = (
    Fault("kill", "passes", STEP, delay_s=0.05),
    Fault("kill", "update", STEP, rank="all"),
    Fault("kill", "start", (-1, -1)),
    Fault("kill", "join", (-1, -1), delay_s=0.1),
    Fault("kill", "load", (-1, -1), delay_s=0.3),
    Fault("kill", "evaluation", EVALUATING, delay_s=0.05),
    Fault("kill", "audit", SAVING),
    Fault("kill", "call:copy", SAVING),
    Fault("kill", "call:shards", SAVING),
    Fault("kill", "call:rename", SAVING, rank=0),
    Fault("kill", "call:renamed", SAVING, rank=0),
    Fault("stop", "passes", STEP, delay_s=0.05),
    Fault("stop", "call:shards", SAVING),
    Fault("stop for a while", "update", STEP, amount=2.0),
    Fault("hold the interpreter", "data", STEP),
    Fault("deadlock", "call:evaluation batch", EVALUATING),
    Fault("raise", "update", STEP),
    Fault("raise", "load", (-1, -1)),
    Fault("out of memory", "call:passes", STEP),
    Fault("slow", "call:block", STEP, amount=0.3),
    Fault("lose the watchdog", "data", STEP),
    Fault("clock jump", "data", STEP, rank=0, amount=600.0),
    Fault("clock jump", "data", STEP, rank=0, amount=-600.0),
    Fault("ask to stop", "passes", STEP, rank="all"),
    Fault("ask to stop", "passes", STEP),
    Fault("disk full", "call:shards", SAVING),
    Fault("read-only", "data", STEP, rank="all", amount=1.0),
    Fault("sink fails", "call:event", STEP, rank=0, amount=1.0),
    Fault("sink fails", "call:log line", STEP, rank=0, amount=1.0),
    Fault("delete checkpoints", "passes", SAVING, rank=0, delay_s=0.2),
    Damage("flip newest"),
    Damage("cut newest"),
    Damage("delete newest"),
    Damage("delete all"),
)
"""Faults that a run heals from."""
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
