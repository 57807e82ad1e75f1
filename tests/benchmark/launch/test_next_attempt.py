"""What is decided after attempts of many kinds: a table."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmark.launch.next_attempt import AttemptOutcome, decide
from benchmark.run_record.attempt_folder import AttemptEnding, AttemptStart, new_attempt, write_ending, write_start
from benchmark.run_record.endings import ENDINGS, Action, StopNote
from benchmark.run_record.file_names import STOP_NOTE_FILE, attempt_path
from benchmark.run_record.incidents import Incident, IncidentKind, write_incident
from benchmark.run_record.small_files import write_object

DEAD = Incident(100.0, 9, "n2", 7, "killed", 12, "passes", "gone without a word")
DEAD_LINE = "rank 9 on n2 after step 12, in passes: killed: gone without a word"


@dataclass(frozen=True)
class Past:
    """An attempt that began and has ended."""

    cause: Incident | None = DEAD
    resumed_at: int | None = None
    status: int = 137
    exclude: tuple[str, ...] = ()
    action: str = "again"
    """The launcher's decision."""

    def leave(self, run_dir: Path) -> None:
        name = new_attempt(run_dir)
        folder = attempt_path(run_dir, name)
        write_start(folder, AttemptStart(name, "77", None, None, float(name), self.resumed_at, ("n1", "n2")))
        if self.cause is not None:
            write_incident(folder, self.cause)
            lost = dataclasses.replace(self.cause, rank=0, host="n1", kind="lost connection", time_s=50.0)
            write_incident(folder, lost)
        write_ending(folder, AttemptEnding(float(name) + 5, self.status, self.action, "", self.exclude))


NEVER_BEGAN = None
"""An attempt that failed before its processes could write anything."""


def of(kind: IncidentKind, **changes: Any) -> Incident:
    return dataclasses.replace(DEAD, kind=kind, **changes)


@dataclass(frozen=True)
class Case:
    """What attempts left in the run's folder, and what is to be decided after the last one."""

    past: tuple[Past | None, ...]
    action: Action
    says: str = ""
    """Part of the reason."""
    status: int = 137
    """Exit status of the last attempt."""
    ends: int | None = None
    """Exit status for the caller, where it matters."""
    exclude: tuple[str, ...] = ()
    saved: int | None = 8
    """Steps of the newest checkpoint."""
    stopped: StopNote | None = None
    finished: str | None = None
    """Status in summary.json."""
    is_explained: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    """More that the launcher knows."""


BUG, REFUSED = of("exception", message="a bug"), of("input", message="--x is missing", steps=None)
SPOILT = of("input", message="holds token 9")
NO_DISK = of("disk", message="Input/output error")
SIGTERM, EXIT = StopNote("signal SIGTERM", 12, saved=True), StopNote("exit trigger", 12, saved=True)
SPARE, LOST = {"spare_hosts": 1}, {"down_hosts": ("n2",)}
GIVEN_UP = Past(resumed_at=8, action="stop")
STUCK = tuple(Past(resumed_at=8) for _ in range(5))
CASES = {
    "killed": Case((Past(),), "again", f"{DEAD_LINE}; starting again from step 8 on"),
    "killed before a checkpoint": Case((Past(),), "again", "starting again from the initial checkpoint", saved=None),
    "no word": Case((Past(None),), "again", "ended with status 1 and left no word", status=1, is_explained=False),
    "no word of a lost node": Case((Past(None),), "requeue", "node n2 is lost: no process left a word; too few nodes",
                                   status=0, ends=75, exclude=("n2",), is_explained=False,
                                   facts={**LOST, "spare_hosts": -1}),
    "no attempt": Case((), "again", status=1, is_explained=False),
    # bad input
    "bad input": Case((Past(REFUSED),), "stop", "--x is missing", status=2, ends=2),
    "refused twice": Case((Past(None, status=2), Past(None)), "stop", "and left no word, twice: an option or an",
                          status=2, ends=2, is_explained=False),
    "refused after another failure": Case((Past(None, status=1), Past(None)), "again", status=2, is_explained=False),
    "another failure after a refusal": Case((Past(None, status=2), Past(None)), "again", status=1, is_explained=False),
    "refused after an incident": Case((Past(DEAD, status=2), Past(None)), "again", status=2, is_explained=False),
    "did not meet": Case((Past(of("meeting")),), "again", status=2),
    "refused after a good beginning": Case((Past(), Past(REFUSED)), "again", status=2, facts={"follows": True}),
    "refused in another job": Case((Past(), Past(REFUSED)), "stop", status=2),
    "refused once more": Case((Past(), Past(REFUSED), Past(REFUSED)), "requeue", "accepted before, back to the queue",
                              status=2, ends=75, facts={"follows": True}),
    "refused twice by a machine": Case((Past(), Past(REFUSED), Past(REFUSED)), "again", status=2, exclude=("n2",),
                                       facts={"follows": True, **SPARE}),
    "refused by a machine that failed": Case((Past(), Past(REFUSED)), "again", status=2, exclude=("n2",),
                                             facts={"follows": True, **SPARE}),
    "refused twice at a step": Case((Past(), Past(SPOILT), Past(SPOILT)), "stop", "came twice", status=2, ends=2,
                                    facts={"follows": True}),
    "refused for good": Case((Past(), *[Past(REFUSED, 8)] * 5), "stop", "given up", status=2, facts={"follows": True}),
    # the end
    "success": Case((Past(),), "done", "the run has ended: success", ends=0, finished="success"),
    "completed": Case((Past(),), "done", "the run has ended: completed", ends=0, finished="completed"),
    "no target": Case((Past(),), "done", "ended: target not reached", ends=1, finished="target not reached"),
    # stopped, and may be continued
    "time limit": Case((), "requeue", status=75, ends=75, stopped=StopNote("time limit", 12, saved=True)),
    "asked by a person": Case((), "stop", "as the file 'exit'", status=75, ends=75, stopped=EXIT),
    "torchrun's status": Case((Past(None),), "stop", "as the file 'exit'", status=1, ends=75, stopped=EXIT),
    "not saved": Case((), "requeue", "stopped, and not saved: time limit", status=75,
                      stopped=StopNote("time limit", 12, saved=False)),
    "stopped without a note": Case((), "requeue", status=75),
    "note of an earlier stop": Case((NEVER_BEGAN,), "again", status=1, stopped=EXIT, is_explained=False),
    "note, and a failure": Case((Past(),), "again", stopped=EXIT),
    "SIGTERM that the job did not get": Case((Past(None),), "again", "this job got none, as when srun", status=143,
                                             exclude=("n2",), stopped=SIGTERM, facts=LOST),
    "SIGTERM that it got": Case((Past(None),), "requeue", status=75, stopped=SIGTERM, facts={"ordered": "SIGTERM"}),
    "SIGTERM, and too few nodes": Case((Past(None),), "requeue", status=75, stopped=SIGTERM, facts={"spare_hosts": -1}),
    # given up
    "error": Case((Past(BUG),), "again", status=70),
    "same error": Case((Past(BUG), Past(BUG, resumed_at=8)), "stop",
                       "exception: a bug; the same error came twice at the same step: given up", status=70, ends=70),
    "same failed check": Case((Past(of("check")), Past(of("check"))), "stop", "came twice", status=70),
    "no memory twice": Case((Past(of("out of memory")), Past(of("out of memory"))), "stop", "came twice", status=70),
    "same error elsewhere": Case((Past(BUG), Past(dataclasses.replace(BUG, steps=13))), "again", status=70),
    "another error": Case((Past(BUG), Past(dataclasses.replace(BUG, message="other"))), "again", status=70),
    "killed twice at a step": Case((Past(), Past()), "again", saved=20),
    "no progress in 4": Case(STUCK[1:], "again"),
    "no progress in 5": Case(STUCK, "stop", "no progress in 5 attempts: given up", ends=137),
    "a person has started it again": Case((*STUCK[1:], GIVEN_UP, Past(resumed_at=8)), "again"),
    "a disk that stays away": Case((Past(NO_DISK, 8),) * 5, "requeue", "until the disk works", status=70, ends=75),
    "progress": Case(STUCK, "again", saved=16),
    "four never began": Case((Past(), *[NEVER_BEGAN] * 4), "again", status=1, is_explained=False),
    "five never began": Case((Past(), *[NEVER_BEGAN] * 5), "stop", status=1, is_explained=False),
    "five that could leave no word": Case((Past(), *[NEVER_BEGAN] * 5), "requeue", "until the disk works", status=70,
                                          ends=75, is_explained=False),
    "interruptions are no failures": Case((*[Past(None, 8, status=75)] * 5, Past(resumed_at=8)), "again"),
    # machines
    "lost node": Case((Past(of("lost connection")),), "again", "node n3 is lost: rank ", exclude=("n3",),
                      facts={"down_hosts": ("n3",)}),
    "first failure of a machine": Case((Past(),), "again", facts=SPARE),
    "second failure of a machine": Case((Past(), Past()), "again", "again from step 8 on, without n2", exclude=("n2",),
                                        facts=SPARE),
    "no spare machine": Case((Past(), Past()), "again"),
    "device": Case((Past(of("device")),), "again", exclude=("n2",), facts=SPARE),
    "left out before": Case((Past(dataclasses.replace(BUG, host="n1"), exclude=("n2",)),), "again", exclude=("n2",)),
    "too few machines": Case((Past(),), "requeue", ends=75, exclude=("n2",), facts={**LOST, "spare_hosts": -1}),
    "spare machine": Case((Past(),), "again", exclude=("n2",), facts=LOST),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_decision(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    for past in case.past:
        if past is NEVER_BEGAN:
            new_attempt(tmp_path)
        else:
            past.leave(tmp_path)
    if case.saved is not None:
        (tmp_path / "checkpoints" / f"step_{case.saved:08d}").mkdir(parents=True)
    if case.stopped is not None:
        write_object(tmp_path / STOP_NOTE_FILE, case.stopped)
    if case.finished is not None:
        (tmp_path / "summary.json").write_text(json.dumps({"status": case.finished}))
    decision = decide(tmp_path, AttemptOutcome(f"{len(case.past) or 1:04d}", case.status, **case.facts))
    assert (decision.action, decision.exclude, decision.is_explained) == (
        case.action,
        case.exclude,
        case.is_explained,
    ), decision
    assert case.says in decision.reason
    assert case.ends in (None, decision.status)


def test_only_the_launcher_s_own_attempt_is_judged(tmp_path: Path) -> None:
    """Another job in the same folder has made a newer one."""
    for past in (Past(), Past(REFUSED, status=2)):
        past.leave(tmp_path)
    assert decide(tmp_path, AttemptOutcome("0001", 137)).action == "again"
    assert decide(tmp_path, AttemptOutcome("0002", 2)).action == "stop"


def test_hang_names_all_who_did_not_arrive(tmp_path: Path) -> None:
    folder = attempt_path(tmp_path, new_attempt(tmp_path))
    for rank in range(4):
        state = "T (stopped)" if rank in (1, 3) else "S (sleeping)"
        write_incident(folder, of("hang", rank=rank, message="no sign of life for 60 s", state=state))
    assert decide(tmp_path, AttemptOutcome("0001", 137)).reason.startswith(
        "rank 1 on n2 after step 12, in passes: hang: no sign of life for 60 s (T (stopped)) "
        "(nor did rank 3 on n2 arrive); starting again"
    )


def test_exit_status_of_each_ending_and_what_follows() -> None:
    """Scripts rely on them."""
    assert {ending: (then.exit_status, then.action) for ending, then in ENDINGS.items()} == {
        "success": (0, "done"),
        "target not reached": (1, "done"),
        "bad input": (2, "stop"),
        "failed": (70, "again"),
        "interrupted": (75, "requeue"),
    }
