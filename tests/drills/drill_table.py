"""What drills there are of the run itself: a row each. Those of the job under Slurm are in slurm_faults.py."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.drills.faults import Damage, Fault
from tests.drills.practice import STEPS

Outcome = Literal["healed", "stopped", "noted"]
"""healed: the run came to its end without a person, equal to the bit to one that nothing disturbed. stopped: it ended,
and said why. noted: it came to its end and said what happened, and what it learned is another thing."""


@dataclass(frozen=True)
class Drill:
    """A run with a fault, and what must come of it."""

    name: str
    what: str
    """For people, in a line."""
    faults: tuple[Fault, ...] = ()
    attempts: int | None = None
    """How many there must be; None: that depends on the moment."""
    words: tuple[str, ...] = ()
    """Regular expressions: each must be found in what the run said."""
    outcome: Outcome = "healed"
    damage: tuple[Damage, ...] = ()
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
    most_detection_s: float | None = None
    """From the fault to the first incident."""


ANY = (1, 22)
BEFORE = (-1, -1)
SAVING = (8, 9)
LONG = 48
LOOKED = 2.5
"""Seconds after which a process has looked for files that ask for something: some 30 of a drill's steps."""
FOUR = "TP2 x PP2"
HANG = (r"no sign of life",)
STOPPED = (r"T \(stopped\)",)
CRASH = Fault("kill", "passes", (13, 15))


def kill(at: str, steps: tuple[int, int] = (9, 15), **fields: Any) -> tuple[Fault]:
    return (Fault("kill", at, steps, **fields),)


def stopped(name: str, what: str, *row: Any, **fields: Any) -> Drill:
    return dataclasses.replace(Drill(name, what, *row, **fields), outcome="stopped")


ROWS = (
    # A process dies.
    Drill("kill-rank-0", "kill -9 of rank 0 in a step", kill("passes", ANY, rank=0, delay_s=0.03), 2),
    Drill("kill-rank-1", "kill -9 of rank 1 in a step", kill("passes", ANY, rank=1, delay_s=0.03), 2),
    Drill("kill-one-of-four", "kill -9 of a rank of a tensor- and pipeline-parallel run",
          kill("passes", ANY, delay_s=0.03), 2, layout=FOUR),
    Drill("kill-all", "kill -9 of all ranks: the node is gone", kill("passes", ANY, rank="all"), 2),
    Drill("kill-three-times", "kill -9 of some rank in three attempts",
          tuple(Fault("kill", "update", (3 + 6 * n, 7 + 6 * n), attempt=n + 1) for n in range(3)), 4),
    Drill("kill-in-start", "kill -9 before the run folder is open", kill("start", BEFORE), 2),
    Drill("kill-in-join", "kill -9 while the processes meet", kill("join", BEFORE), 2),
    Drill("kill-in-load", "kill -9 while weights are loaded", kill("load", BEFORE, delay_s=0.1), 2),
    Drill("kill-in-first-step", "kill -9 within the first step", kill("passes", (0, 0), delay_s=0.03), 2),
    Drill("kill-in-evaluation", "kill -9 during an evaluation", kill("evaluation", SAVING, delay_s=0.02), 2),
    Drill("kill-in-copy", "kill -9 while a save copies the state", kill("call:copy", SAVING), 2),
    Drill("kill-in-shards", "kill -9 while shards are written", kill("call:shards", SAVING), 2),
    Drill("kill-before-rename", "kill -9 when all shards are there, before the rename",
          kill("call:rename", SAVING, rank=0), 2),
    Drill("kill-in-retire", "kill -9 while old checkpoints are removed", kill("call:retire", (11, 12), rank=0), 2),
    Drill("kill-after-rename", "kill -9 just after the rename", kill("call:renamed", SAVING, rank=0), 2),
    Drill("kill-before-summary", "kill -9 when the log has its end, before the summary",
          kill("call:summary", (24, 24), rank=0), 2),
    # A process hangs.
    Drill("stop-for-ever", "SIGSTOP of a rank, at the system's own limits", (Fault("stop", "passes"),), 2,
          HANG + STOPPED, own_limits=True, most_detection_s=60.0),
    Drill("stop-one-of-four", "SIGSTOP of a rank of a tensor- and pipeline-parallel run", (Fault("stop", "passes"),), 2,
          STOPPED, layout=FOUR),
    Drill("stop-for-20-s", "SIGSTOP of a rank, SIGCONT after 20 s, at the system's own limits",
          (Fault("stop for a while", "passes", amount=20.0),), 1, own_limits=True),
    Drill("stop-in-save", "SIGSTOP of a rank while shards are written", (Fault("stop", "call:shards", SAVING),), 2,
          HANG),
    Drill("hold-the-interpreter", "a call into C never returns and keeps Python's lock",
          (Fault("hold the interpreter", "update"),), 2, HANG),
    Drill("deadlock-in-evaluation", "a lock that is never released, in an evaluation's data loading",
          (Fault("deadlock", "call:evaluation batch"),), 2, (r"in evaluation: hang",)),
    Drill("hang-and-crash", "one rank hangs, another fails in the same step",
          (Fault("hold the interpreter", "update", (10, 10), rank=0), Fault("raise", "update", (10, 10), rank=1)), 2),
    Drill("watchdog-killed", "a rank loses its watchdog, then is killed",
          (Fault("lose the watchdog", "data", (6, 6), rank=1), Fault("kill", "passes", (10, 15), rank=1)), 2),
    Drill("watchdogs-killed-then-hang", "all ranks lose their watchdogs, then one hangs",
          (Fault("lose the watchdog", "data", (4, 4), rank="all"), Fault("stop", "passes", (60, 70), rank=1)), 2, HANG,
          steps=2 * LONG, most_detection_s=40.0),
    Drill("slow-rank", "one rank computes 30 % slower", (Fault("slow", "call:block", (2, 2), rank=1, amount=0.3),), 1,
          (r"rank 1 on \S+ computes \d+% slower",), steps=3 * LONG),
    # A process fails.
    Drill("exception", "an exception on one rank", (Fault("raise", "update", ANY),), 2),
    Drill("exception-one-of-four", "an exception on one rank of a tensor- and pipeline-parallel run",
          (Fault("raise", "update", ANY),), 2, layout=FOUR),
    stopped("same-exception-again", "the same exception at the same step in every attempt",
            (Fault("raise", "update", (10, 15), attempt=None),), 2,
            (r"rank \d on \S+ after step \d+, in update: exception: RuntimeError.*twice at the same step: given up",)),
    stopped("no-progress", "kill -9 in the first step of every attempt", kill("passes", (0, 0), attempt=None), 5,
            (r"no progress in 5 attempts: given up",)),
    Drill("out-of-memory", "out of memory on one rank", (Fault("out of memory", "call:passes"),), 2,
          (r"out of memory",)),
    stopped("bad-input", "the initial checkpoint is not there", (), 1,
            (r"no such folder; convert the checkpoint first",), options={"checkpoint": "missing"}, status=2),
    Drill("clock-forward", "the clock jumps an hour ahead",
          (Fault("clock jump", "data", amount=3600.0, rank="all"),), 1),
    Drill("clock-back", "the clock jumps an hour back", (Fault("clock jump", "data", amount=-3600.0, rank="all"),), 1),
    # Numbers go wrong.
    Drill("nan-gradient", "NaN in a gradient of one rank, in one step", (Fault("nan", "call:gradients"),), 1,
          (r"NaN in \S+ .*held by rank \d",), "noted"),
    Drill("inf-gradient", "inf in a gradient of one rank, in one step", (Fault("inf", "call:gradients"),), 1,
          (r"inf in \S+ .*held by rank \d",), "noted"),
    stopped("wall-of-nan", "NaN in every step from one on",
            (Fault("nan", "call:gradients", (9, 10), amount=1e9, attempt=None),), None,
            (r"10 steps in a row without finite gradients", r"held by rank \d \(\S+\)")),
    Drill("loss-spike", "one step's labels are spoiled: its loss is far off",
          (Fault("spike", "call:step", (40, 42), rank="all"),), 1, (r"spike at step",), "noted", steps=LONG),
    Drill("flipped-weight-alone", "the upper bit of a weight's exponent flips, and there is no copy",
          (Fault("flip a weight", "call:step", (9, 11), amount=30),), 2,
          (r"weights or moments are damaged: \S+ on rank \d .*as a flipped bit makes",)),
    Drill("flipped-weight", "a bit of a weight flips in one of two copies",
          (Fault("flip a weight", "call:step", (9, 11), amount=20),), 2, (r"copies differ between devices",),
          layout="2 copies"),
    # Files go wrong.
    Drill("disk-full", "no space while a checkpoint is written", (Fault("disk full", "call:shards", SAVING),), 1,
          (r"could not be written.*No space left",)),
    Drill("read-only-for-a-while", "the run folder is read-only for two seconds",
          (Fault("read-only", "data", (5, 7), rank="all", amount=2.0),), None, (r"Read-only file system",), steps=LONG),
    stopped("read-only-for-ever", "the run folder is read-only in every attempt",
            (Fault("read-only", "start", BEFORE, rank="all", attempt=None),), None,
            (r"Read-only file system", r"until the disk works")),
    Drill("unreadable-checkpoints", "a crash, and a disk that gives errors for checkpoints when the run starts again",
          (CRASH, Fault("unreadable checkpoints", "start", BEFORE, rank="all", amount=2.0, attempt=2)), 2),
    Drill("flipped-checkpoint", "a crash, and a bit of the newest checkpoint has flipped", (CRASH,),
          damage=(Damage("flip newest"),), lost_saves=2),
    Drill("cut-checkpoint", "a crash, and a file of the newest checkpoint is cut short", (CRASH,),
          damage=(Damage("cut newest"),), lost_saves=2),
    Drill("deleted-checkpoint", "a crash, and the newest checkpoint is gone", (CRASH,), 2,
          damage=(Damage("delete newest"),), lost_saves=2),
    Drill("deleted-checkpoints", "a crash, and all checkpoints are gone", (CRASH,), 2,
          damage=(Damage("delete all"),), lost_saves=4),
    Drill("deleted-while-running", "the folder of checkpoints is deleted under the run",
          (Fault("delete checkpoints", "passes", SAVING, rank=0, delay_s=0.1),), 1),
    stopped("damaged-data", "two pages of a training file are damaged: ids beyond the vocabulary", (), None,
            (r"holds token \d+, but the vocabulary has",), damage=(Damage("flip data", 1),), status=2),
    Drill("sink-fails", "events.jsonl refuses lines for two seconds",
          (Fault("sink fails", "call:event", (5, 9), rank=0, amount=2.0),), 1, (r"events.jsonl: .*training goes on",)),
    Drill("log-fails", "the MLPerf log refuses lines for two seconds",
          (Fault("sink fails", "call:log line", (7, 8), rank=0, amount=2.0),), 1,
          (r"result_0.txt: .*training goes on",)),
    Drill("sink-hangs", "writing to events.jsonl never returns", (Fault("sink hangs", "call:event", (5, 9), rank=0),),
          1,
          (r"events.jsonl: \d+ events could not be written",), losses_known=False),
    # Somebody asks for something.
    Drill("time-limit", "the time limit comes: saved, back to the queue, continued", (), 2, (r"saved and stopped",),
          first_options={"time_limit_s": 2.5}, lost_saves=0),
    Drill("sigterm-all", "SIGTERM to all ranks that the launcher did not get",
          (Fault("ask to stop", "passes", ANY, rank="all"),), 2, (r"saved and stopped",), lost_saves=0),
    Drill("sigterm-one", "SIGTERM to one rank: all agree", (Fault("ask to stop", "passes", ANY),), 2,
          (r"saved and stopped",), lost_saves=0),
    Drill("save-trigger", "touch RUN_DIR/save long before the next save is due: a crash loses only the steps since",
          (Fault("touch save", "data", (5, 5), rank=0, amount=LOOKED), Fault("kill", "passes", (10, 10))), 2,
          (r"checkpoint after [67] steps",), options={"save_interval": 12}),
    Drill("exit-trigger", "touch RUN_DIR/exit: saved and stopped; a person starts it again",
          (Fault("touch exit", "data", (5, 9), rank=0, amount=LOOKED),), 2,
          (r"as the file 'exit' in the run folder asked",), lost_saves=0, continued=True),
)  # fmt: skip
DRILLS: Mapping[str, Drill] = {drill.name: drill for drill in ROWS}
