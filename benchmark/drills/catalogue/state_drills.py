"""Drills in which numbers, files or the machine go wrong, or somebody asks for something: data only."""

from benchmark.drills.catalogue.drill import Drill
from benchmark.drills.catalogue.incidents_elsewhere import (
    FAIL_LOOP,
    LAUNCHER,
    REPEATED_CRASH,
    SHOWSTOPPER,
    SILENT,
    TRIGGERS,
    WALL,
)
from benchmark.drills.faults import Damage, Fault

ANY_STEP = (1, 22)
LONG = 48
LOOKED = 2.5
"""Seconds after which a process has looked for files that ask for something: some 30 of a drill's steps."""


NUMBERS: tuple[Drill, ...] = (
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


CRASHES = Fault("kill", "passes", (13, 15))

FILES: tuple[Drill, ...] = (
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
        steps=LONG,  # it goes on for long enough after that to save
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
        (CRASHES,),
        (Damage("flip newest"),),
        lost_saves=2,
    ),
    Drill(
        "cut-checkpoint",
        "a crash, and a file of the newest checkpoint is cut short",
        REPEATED_CRASH,
        (CRASHES,),
        (Damage("cut newest"),),
        lost_saves=2,
    ),
    Drill(
        "deleted-checkpoint",
        "a crash, and the newest checkpoint is gone",
        REPEATED_CRASH,
        (CRASHES,),
        (Damage("delete newest"),),
        lost_saves=2,
        attempts=2,
    ),
    Drill(
        "deleted-checkpoints",
        "a crash, and all checkpoints are gone",
        REPEATED_CRASH,
        (CRASHES,),
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


REQUESTS: tuple[Drill, ...] = (
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
