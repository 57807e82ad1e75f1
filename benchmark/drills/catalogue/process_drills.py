"""Drills in which a process dies, hangs, is slow or fails: data only."""

from typing import Any

from benchmark.drills.catalogue.drill import Drill
from benchmark.drills.catalogue.incidents_elsewhere import (
    CRASH,
    EVALUATION_HANG,
    FAIL_LOOP,
    LIMBO,
    NO_TIMEOUT,
    REPEATED_CRASH,
)
from benchmark.drills.faults import Fault

ANY_STEP = (1, 22)
LONG = 48
LOOKED = 2.5
"""Seconds after which a process has looked for files that ask for something: some 30 of a drill's steps."""


def kills() -> tuple[Drill, ...]:
    def killed(name: str, what: str, *faults: Fault, covers: str = CRASH, **fields: Any) -> Drill:
        return Drill(name, what, covers, faults, attempts=2, **fields)

    in_step = {"steps": ANY_STEP, "delay_s": 0.03}
    return (
        killed("kill-rank-0", "kill -9 of rank 0 in a step", Fault("kill", "passes", rank=0, **in_step)),  # type: ignore[arg-type]
        killed("kill-rank-1", "kill -9 of rank 1 in a step", Fault("kill", "passes", rank=1, **in_step)),  # type: ignore[arg-type]
        killed(
            "kill-one-of-four",
            "kill -9 of a rank of a tensor- and pipeline-parallel run",
            Fault("kill", "passes", **in_step),  # type: ignore[arg-type]
            layout="TP2 x PP2",
        ),
        killed(
            "kill-all", "kill -9 of all ranks: the node is gone", Fault("kill", "passes", rank="all", steps=ANY_STEP)
        ),
        Drill(
            "kill-three-times",
            "kill -9 of some rank in three attempts",
            REPEATED_CRASH,
            tuple(
                Fault("kill", "update", (3 + 6 * attempt, 7 + 6 * attempt), attempt=attempt + 1) for attempt in range(3)
            ),
            attempts=4,
        ),
        killed(
            "kill-in-start", "kill -9 before the run folder is open", Fault("kill", "start", (-1, -1)), covers=LIMBO
        ),
        killed("kill-in-join", "kill -9 while the processes meet", Fault("kill", "join", (-1, -1)), covers=LIMBO),
        killed("kill-in-load", "kill -9 while weights are loaded", Fault("kill", "load", (-1, -1), delay_s=0.1)),
        killed("kill-in-first-step", "kill -9 within the first step", Fault("kill", "passes", (0, 0), delay_s=0.03)),
        killed("kill-in-evaluation", "kill -9 during an evaluation", Fault("kill", "evaluation", (8, 9), delay_s=0.02)),
        killed("kill-in-copy", "kill -9 while a save copies the state", Fault("kill", "call:copy", (8, 9))),
        killed("kill-in-shards", "kill -9 while shards are written", Fault("kill", "call:shards", (8, 9))),
        killed(
            "kill-before-rename",
            "kill -9 when all shards are there, before the rename",
            Fault("kill", "call:rename", (8, 9), rank=0),
        ),
        killed(
            "kill-in-retire",
            "kill -9 while old checkpoints are removed",
            Fault("kill", "call:retire", (11, 12), rank=0),
        ),
        killed("kill-after-rename", "kill -9 just after the rename", Fault("kill", "call:renamed", (8, 9), rank=0)),
        killed(
            "kill-under-torchrun",
            "kill -9 of a rank from outside, under torchrun as in the rehearsal",
            Fault("kill", "outside", (5, 18), rank=1),
            start="torchrun",
        ),
    )


HANGS: tuple[Drill, ...] = (
    Drill(
        "stop-for-ever",
        "SIGSTOP of a rank, at the system's own limits",
        NO_TIMEOUT,
        (Fault("stop", "passes"),),
        words=(r"hang: no sign of life", r"T \(stopped\)"),
        attempts=2,
        own_limits=True,
        most_detection_s=60.0,
    ),
    Drill(
        "stop-one-of-four",
        "SIGSTOP of a rank of a tensor- and pipeline-parallel run",
        NO_TIMEOUT,
        (Fault("stop", "passes"),),
        words=(r"T \(stopped\)",),
        attempts=2,
        layout="TP2 x PP2",
    ),
    Drill(
        "stop-under-torchrun",
        "SIGSTOP of a rank from outside, under torchrun as in the rehearsal",
        NO_TIMEOUT,
        (Fault("stop", "outside", (5, 15)),),
        words=(r"T \(stopped\)",),
        attempts=2,
        start="torchrun",
    ),
    Drill(
        "stop-for-20-s",
        "SIGSTOP of a rank, SIGCONT after 20 s, at the system's own limits",
        "",
        (Fault("stop for a while", "passes", amount=20.0),),
        attempts=1,
        own_limits=True,
    ),
    Drill(
        "stop-in-save",
        "SIGSTOP of a rank while shards are written",
        "",
        (Fault("stop", "call:shards", (8, 9)),),
        words=(r"hang: no sign of life",),
        attempts=2,
    ),
    Drill(
        "hold-the-interpreter",
        "a call into C never returns and keeps Python's lock",
        NO_TIMEOUT,
        (Fault("hold the interpreter", "update"),),
        words=(r"hang: no sign of life",),
        attempts=2,
    ),
    Drill(
        "deadlock-in-evaluation",
        "a lock that is never released, in an evaluation's data loading",
        EVALUATION_HANG,
        (Fault("deadlock", "call:evaluation batch"),),
        words=(r"in evaluation: hang",),
        attempts=2,
    ),
    Drill(
        "hang-and-crash",
        "one rank hangs, another fails in the same step",
        LIMBO,
        (Fault("hold the interpreter", "update", (10, 10), rank=0), Fault("raise", "data", (11, 11), rank=1)),
        attempts=2,
    ),
    Drill(
        "watchdog-killed",
        "a rank loses its watchdog, then is killed",
        "",
        (Fault("lose the watchdog", "data", (6, 6), rank=1), Fault("kill", "passes", (10, 15), rank=1)),
        attempts=2,
    ),
    Drill(
        "watchdog-killed-then-hang",
        "a rank loses its watchdog, then hangs: another's watchdog notices",
        "",
        (Fault("lose the watchdog", "data", (6, 6), rank=1), Fault("stop", "passes", (10, 15), rank=1)),
        words=(r"hang: no sign of life",),
        attempts=2,
    ),
    Drill(
        "slow-rank",
        "one rank computes 30 % slower",
        "BLOOM 2022-04-28: 5 % less throughput; the slow node was found by elimination",
        (Fault("slow", "call:block", (2, 2), rank=1, amount=0.3),),
        words=(r"rank 1 on \S+ computes \d+% slower",),
        attempts=1,
        steps=3 * LONG,  # where processes share cores, twelve samples name it three times in four
    ),
)


FAILURES: tuple[Drill, ...] = (
    Drill("exception", "an exception on one rank", LIMBO, (Fault("raise", "update", ANY_STEP),), attempts=2),
    Drill(
        "exception-one-of-four",
        "an exception on one rank of a tensor- and pipeline-parallel run",
        LIMBO,
        (Fault("raise", "update", ANY_STEP),),
        attempts=2,
        layout="TP2 x PP2",
    ),
    Drill(
        "same-exception-again",
        "the same exception at the same step in every attempt",
        FAIL_LOOP,
        (Fault("raise", "update", (10, 15), attempt=None),),
        outcome="stopped",
        words=(r"rank \d on \S+ after step \d+, in update: exception: RuntimeError.*twice at the same step: given up",),
        attempts=2,
    ),
    Drill(
        "no-progress",
        "kill -9 in the first step of every attempt",
        FAIL_LOOP,
        (Fault("kill", "passes", (0, 0), attempt=None),),
        outcome="stopped",
        words=(r"no progress in 5 attempts: given up",),
        attempts=5,
    ),
    Drill(
        "out-of-memory",
        "out of memory on one rank",
        "",
        (Fault("out of memory", "call:passes"),),
        words=(r"out of memory",),
        attempts=2,
    ),
    Drill(
        "bad-input",
        "the initial checkpoint is not there",
        FAIL_LOOP,
        options={"checkpoint": "missing"},
        outcome="stopped",
        words=(r"no such folder; convert the checkpoint first",),
        attempts=1,
        status=2,
    ),
    Drill(
        "clock-forward",
        "the clock jumps an hour ahead",
        "",
        (Fault("clock jump", "data", amount=3600.0, rank="all"),),
        attempts=1,
    ),
    Drill(
        "clock-back",
        "the clock jumps an hour back",
        "",
        (Fault("clock jump", "data", amount=-3600.0, rank="all"),),
        attempts=1,
    ),
)
