"""What is decided after attempts of many kinds."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmark.launch.attempt_folder import (
    AttemptEnd,
    AttemptStart,
    all_attempts,
    attempt_path,
    new_attempt,
    write_end,
    write_start,
)
from benchmark.launch.endings import ENDINGS, STOP_NOTE, StopNote
from benchmark.launch.incidents import Incident, IncidentKind, write_incident
from benchmark.launch.next_attempt import NO_PROGRESS, Decision, Ended, decide
from benchmark.launch.small_files import write_object

DEAD = Incident(100.0, 9, "n2", 7, "killed", 12, "passes", "gone without a word")


def attempt(
    run_dir: Path, cause: Incident | None, *, resumed_at: int | None = None, status: int = 137, exclude: Any = ()
) -> None:
    """One that began and has ended."""
    name = new_attempt(run_dir)
    folder = attempt_path(run_dir, name)
    write_start(folder, AttemptStart(name, "77", None, None, float(name), resumed_at, ("n1", "n2")))
    if cause is not None:
        write_incident(folder, cause)
        write_incident(folder, dataclasses.replace(cause, rank=0, host="n1", kind="lost connection", time_s=50.0))
    write_end(folder, AttemptEnd(float(name) + 5, status, "again", "", tuple(exclude)))


def decided(run_dir: Path, status: int, *, saved_steps: int | None, **facts: Any) -> Decision:
    """After the newest attempt; the newest checkpoint is that of ``saved_steps``."""
    shutil.rmtree(run_dir / "checkpoints", ignore_errors=True)
    if saved_steps is not None:
        (run_dir / "checkpoints" / f"step_{saved_steps:08d}").mkdir(parents=True)
    newest = [folder.name for folder in all_attempts(run_dir)][-1:] or ["0001"]
    return decide(run_dir, Ended(newest[0], status, **facts))


def of(kind: IncidentKind, **changes: Any) -> Incident:
    return dataclasses.replace(DEAD, kind=kind, **changes)


def test_exit_status_of_each_ending_and_what_follows() -> None:
    """Scripts rely on them."""
    assert {ending: (then.exit_status, then.action) for ending, then in ENDINGS.items()} == {
        "success": (0, "done"),
        "target not reached": (1, "done"),
        "bad input": (2, "stop"),
        "failed": (70, "again"),
        "interrupted": (75, "requeue"),
    }


def test_killed_process_is_started_again_from_the_newest_checkpoint(tmp_path: Path) -> None:
    attempt(tmp_path, DEAD)
    decision = decided(tmp_path, 137, saved_steps=8)
    assert (decision.action, decision.exclude, decision.known) == ("again", (), True)
    assert decision.reason == (
        "rank 9 on n2 after step 12, in passes: killed: gone without a word; starting again from step 8 on"
    )
    assert decided(tmp_path, 137, saved_steps=None).reason.endswith("starting again from the initial checkpoint")


def test_attempt_without_a_word_is_started_again_and_said_to_be_unknown(tmp_path: Path) -> None:
    attempt(tmp_path, None)
    decision = decided(tmp_path, 1, saved_steps=None)
    assert (decision.action, decision.known) == ("again", False)
    assert "ended with status 1 and left no word" in decision.reason
    assert decided(tmp_path / "nothing", 1, saved_steps=None).action == "again"


def test_bad_input_is_not_tried_again(tmp_path: Path) -> None:
    attempt(tmp_path, of("input", message="--checkpoint is missing"), status=2)
    decision = decided(tmp_path, 2, saved_steps=None)
    assert (decision.action, decision.status, decision.reason) == ("stop", 2, "--checkpoint is missing")


@pytest.mark.parametrize(
    ("cause", "statuses", "action"),
    [(None, (2, 2), "stop"), (None, (1, 2), "again"), (None, (2, 1), "again"), (DEAD, (2, 2), "again")],
)
def test_what_is_refused_twice_before_a_word_could_be_left_is_given_up(
    cause: Incident | None, statuses: tuple[int, int], action: str, tmp_path: Path
) -> None:
    attempt(tmp_path, cause, status=statuses[0])
    attempt(tmp_path, None)
    decision = decided(tmp_path, statuses[1], saved_steps=None)
    assert decision.action == action
    if action == "stop":
        assert (decision.status, decision.known) == (2, False)
        assert decision.reason.startswith("the processes ended with status 2 and left no word, twice: an option or an")


def test_processes_that_did_not_meet_are_started_again(tmp_path: Path) -> None:
    attempt(tmp_path, of("meeting", message="n1:29500 is in use"), status=2)
    assert decided(tmp_path, 2, saved_steps=None).action == "again"


@pytest.mark.parametrize(("status", "expected"), [("success", 0), ("completed", 0), ("target not reached", 1)])
def test_run_with_a_summary_has_ended(tmp_path: Path, status: str, expected: int) -> None:
    attempt(tmp_path, DEAD)
    (tmp_path / "summary.json").write_text(json.dumps({"status": status}))
    decision = decided(tmp_path, 137, saved_steps=8)
    assert (decision.action, decision.status, decision.reason) == ("done", expected, f"the run has ended: {status}")


@pytest.mark.parametrize(
    ("by", "action"),
    [("time limit", "requeue"), ("signal SIGUSR2", "requeue"), ("exit trigger", "stop")],
)
def test_saved_run_goes_back_to_the_queue_unless_a_person_ended_it(tmp_path: Path, by: str, action: str) -> None:
    write_object(tmp_path / STOP_NOTE, StopNote(by, 12, saved=True))
    decision = decided(tmp_path, 75, saved_steps=8)
    assert (decision.action, decision.status) == (action, 75)
    attempt(tmp_path, None, status=1)  # torchrun's, which ended the other processes itself
    assert decided(tmp_path, 1, saved_steps=8) == decision


def test_sigterm_that_the_launcher_did_not_get_is_no_order(tmp_path: Path) -> None:
    """As from srun, when a slurmstepd has died: healthy nodes are kept."""
    attempt(tmp_path, None, status=143)
    write_object(tmp_path / STOP_NOTE, StopNote("signal SIGTERM", 12, saved=True))
    decision = decided(tmp_path, 143, saved_steps=12, down_hosts=("n2",), spare_hosts=0)
    assert (decision.action, decision.exclude) == ("again", ("n2",))
    assert "this job got none" in decision.reason and "node n2 is lost" in decision.reason
    assert decided(tmp_path, 75, saved_steps=12, ordered="SIGTERM").action == "requeue"
    assert decided(tmp_path, 75, saved_steps=12, spare_hosts=-1).action == "requeue"


def test_only_the_launcher_s_own_attempt_is_judged(tmp_path: Path) -> None:
    """Another job in the same folder has made a newer one."""
    attempt(tmp_path, DEAD)
    attempt(tmp_path, of("input", message="the folder is in use"), status=2)
    assert decide(tmp_path, Ended("0001", 137)).action == "again"
    assert decide(tmp_path, Ended("0002", 2)).action == "stop"


def test_what_refuses_after_a_good_beginning_is_tried_once_more(tmp_path: Path) -> None:
    """A folder that cannot be written for a while looks like bad input."""
    attempt(tmp_path, DEAD)
    attempt(tmp_path, of("input", message="attempts: Operation not permitted"), status=2)
    assert decided(tmp_path, 2, saved_steps=8, follows=True).action == "again"
    assert decided(tmp_path, 2, saved_steps=8).action == "stop"  # of another job, whose options may be others
    attempt(tmp_path, of("input", message="attempts: Operation not permitted"), status=2)
    assert decided(tmp_path, 2, saved_steps=8, follows=True).action == "stop"


def test_a_lost_node_is_named_first(tmp_path: Path) -> None:
    attempt(tmp_path, of("lost connection", message="Connection closed by peer"))
    reason = decided(tmp_path, 1, saved_steps=8, down_hosts=("n3",)).reason
    assert reason.startswith("node n3 is lost: rank ") and reason.endswith("from step 8 on, without n3")


def test_note_of_an_earlier_stop_does_not_count(tmp_path: Path) -> None:
    write_object(tmp_path / STOP_NOTE, StopNote("exit trigger", 12, saved=True))
    new_attempt(tmp_path)  # failed before it could remove the note
    assert decided(tmp_path, 1, saved_steps=8).action == "again"
    attempt(tmp_path, DEAD)
    assert decided(tmp_path, 137, saved_steps=8).action == "again"


def test_stop_that_could_not_be_saved_is_said(tmp_path: Path) -> None:
    write_object(tmp_path / STOP_NOTE, StopNote("time limit", 12, saved=False))
    assert decided(tmp_path, 75, saved_steps=8).reason == "stopped, and not saved: time limit"


def test_damaged_note_of_the_stop_is_an_interruption(tmp_path: Path) -> None:
    (tmp_path / "stopped.json").write_text("[]")
    assert decided(tmp_path, 75, saved_steps=8).action == "requeue"


@pytest.mark.parametrize("kind", ["exception", "check", "out of memory"])
def test_same_error_twice_at_the_same_step_ends_it(tmp_path: Path, kind: IncidentKind) -> None:
    attempt(tmp_path, of(kind, message="ZeroDivisionError: a bug"))
    assert decided(tmp_path, 70, saved_steps=8).action == "again"
    attempt(tmp_path, of(kind, message="ZeroDivisionError: a bug"), resumed_at=8)
    decision = decided(tmp_path, 70, saved_steps=8)
    assert (decision.action, decision.status) == ("stop", 70)
    assert "rank 9 on n2 after step 12" in decision.reason
    assert decision.reason.endswith("the same error came twice at the same step: given up")


def test_same_error_at_another_step_and_other_errors_go_on(tmp_path: Path) -> None:
    for changes in ({"steps": 12}, {"steps": 13}, {"steps": 13, "message": "other"}):
        attempt(tmp_path, of("exception", **changes), resumed_at=8)
        assert decided(tmp_path, 70, saved_steps=12).action == "again"
    attempt(tmp_path, DEAD)
    attempt(tmp_path, DEAD)  # a machine may die twice at a step
    assert decided(tmp_path, 137, saved_steps=20).action == "again"


def test_no_progress_ends_it_and_a_new_checkpoint_is_progress(tmp_path: Path) -> None:
    for _ in range(NO_PROGRESS - 1):
        attempt(tmp_path, DEAD, resumed_at=8)
    assert decided(tmp_path, 137, saved_steps=8).action == "again"
    attempt(tmp_path, DEAD, resumed_at=8)
    decision = decided(tmp_path, 137, saved_steps=8)
    assert (decision.action, decision.status) == ("stop", 137)
    assert decision.reason.endswith("no progress in 5 attempts: given up")
    assert decided(tmp_path, 137, saved_steps=16).action == "again"


def test_attempts_that_never_begin_are_no_progress(tmp_path: Path) -> None:
    attempt(tmp_path, DEAD, resumed_at=None)
    for _ in range(NO_PROGRESS - 1):
        new_attempt(tmp_path)
        assert decided(tmp_path, 1, saved_steps=8).action == "again"
    new_attempt(tmp_path)
    assert decided(tmp_path, 1, saved_steps=8).action == "stop"


def test_interruptions_are_no_failures(tmp_path: Path) -> None:
    for _ in range(NO_PROGRESS):
        attempt(tmp_path, None, resumed_at=8, status=75)
    attempt(tmp_path, DEAD, resumed_at=8)
    assert decided(tmp_path, 137, saved_steps=8).action == "again"


def test_machine_that_failed_twice_is_left_out_where_one_is_spare(tmp_path: Path) -> None:
    attempt(tmp_path, DEAD)
    assert decided(tmp_path, 137, saved_steps=8, spare_hosts=1).exclude == ()
    attempt(tmp_path, DEAD)
    assert decided(tmp_path, 137, saved_steps=8, spare_hosts=0).exclude == ()
    decision = decided(tmp_path, 137, saved_steps=8, spare_hosts=1)
    assert decision.exclude == ("n2",)
    assert decision.reason.endswith("starting again from step 8 on, without n2")


def test_machine_with_a_broken_device_is_left_out_at_once_and_stays_out(tmp_path: Path) -> None:
    attempt(tmp_path, of("device", message="CUDA error"))
    decision = decided(tmp_path, 70, saved_steps=8, spare_hosts=1)
    assert decision.exclude == ("n2",)
    attempt(tmp_path, of("exception", host="n1"), exclude=("n2",))
    assert decided(tmp_path, 70, saved_steps=8).exclude == ("n2",)


def test_missing_machines_send_the_job_back_to_the_queue(tmp_path: Path) -> None:
    attempt(tmp_path, DEAD)
    decision = decided(tmp_path, 137, saved_steps=8, spare_hosts=-1, down_hosts=("n2",))
    assert (decision.action, decision.status, decision.exclude) == ("requeue", 75, ("n2",))
    spare = decided(tmp_path, 137, saved_steps=8, spare_hosts=0, down_hosts=("n2",))
    assert (spare.action, spare.exclude) == ("again", ("n2",))


def test_hang_names_all_who_did_not_arrive(tmp_path: Path) -> None:
    folder = attempt_path(tmp_path, new_attempt(tmp_path))
    for rank in range(4):
        state = "T (stopped)" if rank in (1, 3) else "S (sleeping)"
        write_incident(folder, of("hang", rank=rank, message="no sign of life for 60 s", state=state))
    decision = decided(tmp_path, 137, saved_steps=8)
    assert decision.reason.startswith(
        "rank 1 on n2 after step 12, in passes: hang: no sign of life for 60 s (T (stopped)) "
        "(nor did rank 3 on n2 arrive); starting again"
    )
