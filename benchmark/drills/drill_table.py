"""The drills: data only. What happens, which incident of which run it is, and what must come of it.

The incidents: BLOOM's chronicle (176B, Jean Zay, 2022), Team Kinoe's report (2024), X. Dunn's notes on training at
scale (2024), the launcher of swiss-ai (its README).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmark.config.run_config import Submission
from benchmark.drills.faults import Damage, Fault
from benchmark.drills.practice import STEPS

Outcome = Literal["healed", "stopped", "noted"]
"""healed: the run came to its end without a person, equal to the bit to one that nothing disturbed. stopped: it ended,
and said why. noted: it came to its end and said what happened, and what it learned is another thing."""
Start = Literal["forked", "torchrun", "none"]
"""How the processes start: as in forked_ranks.py; as the rehearsal's; not at all, for what is found before a job."""

ANY_STEP = (1, 22)
LONG = 48
LOOKED = 2.5
"""Seconds after which a process has looked for files that ask for something: some 30 of a drill's steps."""
CRASH = "BLOOM 2022-03-21: a GPU crashed, 7.3 h lost"
REPEATED_CRASH = "BLOOM 2022-04-XX: repeated hardware crashes"
LIMBO = "BLOOM 2022-05-18: crashed, but the job stayed in limbo"
EVALUATION_HANG = "BLOOM 2022-04-30, 05-09, 05-18: hanging at evaluation"
NO_TIMEOUT = "BLOOM 2022-04-30: no timeout in three hours"
WALL = "Kinoe 2024-04-30: the wall of NaN at step 2100"
SILENT = "Dunn: devices that give bad values without an error"
SHOWSTOPPER = "Dunn: what is no showstopper must not stop"
LAUNCHER = "launcher README: exit before the time limit, go on by itself"
TRIGGERS = "launcher README: save and exit triggers"
FAIL_LOOP = "launcher README: guard against failing without end"


@dataclass(frozen=True)
class Drill:
    """A run with a fault, and what must come of it."""

    name: str
    what: str
    """For people, in a line."""
    covers: str
    """The incident that it repeats; empty for those of the issue's own list."""
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


def _kills() -> tuple[Drill, ...]:
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


def _hangs() -> tuple[Drill, ...]:
    return (
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
            steps=LONG,
        ),
    )


def _failures() -> tuple[Drill, ...]:
    return (
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
            words=(
                r"rank \d on \S+ after step \d+, in update: exception: RuntimeError.*twice at the same step: given up",
            ),
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


def _numbers() -> tuple[Drill, ...]:
    return (
        Drill(
            "nan-gradient",
            "NaN in a gradient of one rank, in one step",
            SILENT,
            (Fault("nan", "call:gradients"),),
            outcome="noted",
            words=(r"NaN in \S+ .*held by rank \d",),
            attempts=1,
        ),
        Drill(
            "inf-gradient",
            "inf in a gradient of one rank, in one step",
            SILENT,
            (Fault("inf", "call:gradients"),),
            outcome="noted",
            words=(r"inf in \S+ .*held by rank \d",),
            attempts=1,
        ),
        Drill(
            "wall-of-nan",
            "NaN in every step from one on",
            WALL,
            (Fault("nan", "call:gradients", (9, 10), amount=1e9, attempt=None),),
            outcome="stopped",
            words=(r"10 steps in a row without finite gradients", r"each time rank \d \(\S+\) alone"),
        ),
        Drill(
            "loss-spike",
            "one step's labels are spoiled: its loss is far off",
            "BLOOM 2022-04-12: the first spike of the loss",
            (Fault("spike", "call:step", (40, 42), rank="all"),),
            outcome="noted",
            words=(r"spike at step",),
            attempts=1,
            steps=LONG,
        ),
        Drill(
            "loss-spike-left-out",
            "the same in the open division with --on-spike skip-data: back to before it, without these samples",
            "Dunn: automated recovery from spikes: skip the data",
            (Fault("spike", "call:step", (40, 42), rank="all"),),
            outcome="noted",
            words=(r"spike at step", r"samples from [\d,]+ on are left out"),
            attempts=2,
            steps=LONG,
            lost_saves=2,
            options={"on_spike": "skip-data", "submission": Submission(submission_division="open")},
        ),
        Drill(
            "flipped-weight-alone",
            "the upper bit of a weight's exponent flips, and there is no copy",
            SILENT,
            (Fault("flip a weight", "call:step", (9, 11), amount=30),),
            words=(r"weights or moments are damaged: \S+ on rank \d .*as a flipped bit makes",),
            attempts=2,
        ),
        Drill(
            "flipped-weight",
            "a bit of a weight flips in one of two copies",
            "BLOOM 2022-03-24: layer norms out of sync; Dunn: silent errors",
            (Fault("flip a weight", "call:step", (9, 11), amount=20),),
            words=(r"copies differ between devices",),
            attempts=2,
            layout="2 copies",
        ),
    )


def _files() -> tuple[Drill, ...]:
    crash = Fault("kill", "passes", (13, 15))
    return (
        Drill(
            "disk-full",
            "no space while a checkpoint is written",
            "",
            (Fault("disk full", "call:shards", (8, 9)),),
            words=(r"could not be written.*No space left",),
            attempts=1,
        ),
        Drill(
            "read-only-for-a-while",
            "the run folder is read-only for two seconds",
            SHOWSTOPPER,
            (Fault("read-only", "data", (5, 7), rank="all", amount=2.0),),
            words=(r"Read-only file system",),
        ),
        Drill(
            "read-only-for-ever",
            "the run folder is read-only in every attempt",
            FAIL_LOOP,
            (Fault("read-only", "start", (-1, -1), rank="all", attempt=None),),
            outcome="stopped",
            words=(r"Read-only file system", r"given up"),
        ),
        Drill(
            "flipped-checkpoint",
            "a crash, and a bit of the newest checkpoint has flipped",
            REPEATED_CRASH,
            (crash,),
            (Damage("flip newest"),),
            lost_saves=2,
        ),
        Drill(
            "cut-checkpoint",
            "a crash, and a file of the newest checkpoint is cut short",
            REPEATED_CRASH,
            (crash,),
            (Damage("cut newest"),),
            lost_saves=2,
        ),
        Drill(
            "deleted-checkpoint",
            "a crash, and the newest checkpoint is gone",
            REPEATED_CRASH,
            (crash,),
            (Damage("delete newest"),),
            lost_saves=2,
            attempts=2,
        ),
        Drill(
            "deleted-checkpoints",
            "a crash, and all checkpoints are gone",
            REPEATED_CRASH,
            (crash,),
            (Damage("delete all"),),
            lost_saves=4,
            attempts=2,
        ),
        Drill(
            "deleted-while-running",
            "the folder of checkpoints is deleted under the run",
            "",
            (Fault("delete checkpoints", "passes", (8, 9), rank=0, delay_s=0.1),),
            attempts=1,
        ),
        Drill(
            "damaged-data",
            "two pages of a training file are damaged: ids beyond the vocabulary",
            "",
            (),
            (Damage("flip data", 1),),
            outcome="stopped",
            words=(r"hold token \d+, but the model's vocabulary has",),
            status=2,
        ),
        Drill(
            "flipped-data",
            "a bit of a training file flips, and the token is another valid one: found before the job",
            "",
            outcome="stopped",
            words=(r"CHANGED.*\.bin",),
            start="none",
        ),
        Drill(
            "sink-fails",
            "events.jsonl refuses lines for two seconds",
            SHOWSTOPPER,
            (Fault("sink fails", "call:event", (5, 9), rank=0, amount=2.0),),
            words=(r"events.jsonl: .*training goes on",),
            attempts=1,
        ),
        Drill(
            "log-fails",
            "the MLPerf log refuses lines for two seconds",
            SHOWSTOPPER,
            (Fault("sink fails", "call:log line", (7, 8), rank=0, amount=2.0),),
            words=(r"result_0.txt: .*training goes on",),
            attempts=1,
        ),
        Drill(
            "sink-hangs",
            "writing to events.jsonl never returns",
            SHOWSTOPPER,
            (Fault("sink hangs", "call:event", (5, 9), rank=0),),
            words=(r"events.jsonl: \d+ events could not be written",),
            attempts=1,
            losses_known=False,
        ),
    )


def _requests() -> tuple[Drill, ...]:
    return (
        Drill(
            "time-limit",
            "the time limit comes: saved, back to the queue, continued",
            LAUNCHER,
            first_options={"time_limit_s": 2.5},
            words=(r"saved and stopped",),
            attempts=2,
            lost_saves=0,
        ),
        Drill(
            "sigterm-all",
            "SIGTERM to all ranks, as Slurm sends it",
            LAUNCHER,
            (Fault("ask to stop", "passes", ANY_STEP, rank="all"),),
            words=(r"saved and stopped",),
            attempts=2,
            lost_saves=0,
        ),
        Drill(
            "sigterm-one",
            "SIGTERM to one rank: all agree",
            LAUNCHER,
            (Fault("ask to stop", "passes", ANY_STEP),),
            words=(r"saved and stopped",),
            attempts=2,
            lost_saves=0,
        ),
        Drill(
            "save-trigger",
            "touch RUN_DIR/save long before the next save is due: a crash loses nothing but the steps since",
            TRIGGERS,
            (Fault("touch save", "data", (5, 5), rank=0, amount=LOOKED), Fault("kill", "passes", (10, 10))),
            words=(r"checkpoint after [67] steps",),
            attempts=2,
            options={"save_interval": 12},
        ),
        Drill(
            "exit-trigger",
            "touch RUN_DIR/exit: saved and stopped; a person starts it again",
            TRIGGERS,
            (Fault("touch exit", "data", (5, 9), rank=0, amount=LOOKED),),
            words=(r"as the file 'exit' in the run folder asked",),
            attempts=2,
            lost_saves=0,
            continued=True,
        ),
    )


DRILLS: Mapping[str, Drill] = {
    drill.name: drill for drill in (*_kills(), *_hangs(), *_failures(), *_numbers(), *_files(), *_requests())
}
