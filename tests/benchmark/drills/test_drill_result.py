"""What counts as right, and how the figures are counted."""

import dataclasses
from typing import Any

import pytest

from benchmark.drills.aftermath import Aftermath, AttemptRecord, Struck
from benchmark.drills.catalogue.drill import Drill
from benchmark.drills.drill_result import detection_s, judge, log_problems, lost_steps, next_loss_s, outcome_of, unequal
from benchmark.drills.drilled_run import Ended
from benchmark.drills.faults import Fault
from benchmark.results.result_log import LogEvent
from benchmark.supervision.incidents import Incident
from benchmark.supervision.next_attempt import Decision, PastAttempt

DRILL = Drill("kill", "", "", (Fault("kill", "passes"),), attempts=2)


def _record(attempt: int, resumed_at: int, done: int, begun_s: float, saves: tuple[int, ...] = ()) -> AttemptRecord:
    steps = [(step, begun_s + step - resumed_at, 5.0 - step / 10) for step in range(resumed_at + 1, done + 1)]
    return AttemptRecord(attempt, resumed_at, tuple(steps), saves)


def _log(*keys: str) -> tuple[LogEvent, ...]:
    return tuple(LogEvent(n + 1, key, None, 1000 + n, "POINT_IN_TIME", {}, "") for n, key in enumerate(keys))


def _left(**changes: Any) -> Aftermath:
    """A run of 8 steps, killed after 6, continued at 4."""
    cause = Incident(106.5, 1, "n1", 7, "killed", 6, "passes", "gone")
    left = Aftermath(
        attempts=(PastAttempt(None, None, cause, ()), PastAttempt(None, None, None, ())),
        records=(_record(1, 0, 6, 100.0, (4,)), _record(2, 4, 8, 110.0, (8,))),
        struck=(Struck("kill", 1, 1, 6, 106.25),),
        evaluations=(4.5,),
        log=_log("init_start", "init_stop", "run_start", "restart", "run_stop"),
        finished="success",
        steps=8,
        arrays={"weight": "0a"},
        said="",
    )
    return dataclasses.replace(left, **changes)


UNDISTURBED = _left(
    records=(_record(1, 0, 8, 50.0),), struck=(), log=_log("init_start", "init_stop", "run_start", "run_stop")
)


def _judged(drill: Drill = DRILL, *, action: Any = "done", **changes: Any) -> tuple[str, ...]:
    ended = Ended((Decision(action, 0, "the run has ended"),), 9.0, _left(**changes))
    return judge(drill, ended, UNDISTURBED, save_interval=4, faults="").problems


def test_right() -> None:
    ended = Ended((Decision("done", 0, ""),), 9.0, _left())
    result = judge(DRILL, ended, UNDISTURBED, save_interval=4, faults="")
    assert result.problems == ()
    assert (result.outcome, result.attempts, result.lost_steps, result.equal) == ("healed", 2, 2, True)
    assert result.detected_s == pytest.approx(0.25)
    assert result.next_loss_s == pytest.approx(111 - 106.25)


def test_what_is_not_right_is_named() -> None:
    other = "noted, expected healed"
    assert _judged(arrays={"weight": "0b"}) == (other, "1 of 1 arrays differ, weight")
    assert _judged(evaluations=(4.6,)) == (other, "evaluations (4.6,), expected (4.5,)")
    assert _judged(steps=4) == (other, "last checkpoint after 4 steps, expected 8")
    assert _judged(struck=()) == ("a fault did not strike",)
    assert _judged(dataclasses.replace(DRILL, attempts=3)) == ("2 attempts, expected 3",)
    assert _judged(dataclasses.replace(DRILL, words=("nobody",))) == ("nobody said 'nobody'",)
    assert _judged(dataclasses.replace(DRILL, status=2)) == ("status 0, expected 2",)
    assert _judged(dataclasses.replace(DRILL, most_detection_s=0.1))[0].startswith("detected after 0.25 s")
    assert _judged(evidence=("step 3: time", "b", "c", "d")) == ("evidence: step 3: time", "evidence: b", "evidence: c")
    assert _judged(action="stop")[0] == "stopped, expected healed"
    assert _judged(finished=None)[0] == "unfinished, expected healed"
    assert _judged(finished="diverged")[0] == "stopped, expected healed"
    noted = dataclasses.replace(DRILL, outcome="noted", words=("spike",))
    assert _judged(noted, said="a spike", arrays={"weight": "0b"}) == ()
    assert _judged(noted, said="a spike") == ("healed, expected noted",)


def test_losses_that_nobody_recorded_are_not_compared() -> None:
    left = _left(records=())
    assert unequal(left, UNDISTURBED) == ["losses differ after steps [1, 2, 3]"]
    assert unequal(left, UNDISTURBED, losses=False) == []


def test_the_log_has_one_end_and_its_times_do_not_go_back() -> None:
    log = _log("init_start", "init_stop", "run_start", "run_stop", "run_stop")
    assert log_problems(_left(log=log), None, ended=True) == ["2 run_stop, expected 1"]
    assert log_problems(_left(log=log), None, ended=False) == ["2 run_stop, expected 1 at most"]
    assert log_problems(_left(log=()), None, ended=False) == []
    back = (log[1], *log[:1], *log[2:4])
    assert log_problems(_left(log=back), None, ended=True) == ["times in the log go back"]
    more = _log("init_start", "init_stop", "run_start", "eval_stop", "run_stop")
    assert log_problems(_left(log=more), UNDISTURBED, ended=True) == ["lines of the log differ"]


def test_steps_lost_while_a_save_was_on_its_way_are_not_an_intervals() -> None:
    assert lost_steps([_record(1, 0, 7, 0.0, (4,)), _record(2, 4, 8, 9.0)]) == (3, 3)
    on_its_way = [_record(1, 0, 10, 0.0, (4, 8)), _record(2, 4, 8, 9.0)]
    assert lost_steps(on_its_way) == (6, 4)
    assert lost_steps([_record(1, 0, 3, 0.0), _record(2, 0, 3, 5.0), _record(3, 0, 8, 9.0)]) == (6, 3)
    assert lost_steps([]) == (0, 0)
    beyond = (_record(1, 0, 8, 100.0, (3,)), _record(2, 3, 8, 120.0))
    assert _judged(records=beyond) == ("5 steps lost, at most 4 may be",)


def test_next_loss_in_the_same_attempt_where_nothing_was_started_again() -> None:
    left = _left(attempts=_left().attempts[1:], records=(_record(1, 0, 8, 100.0),))
    assert next_loss_s(left) == pytest.approx(0.75)
    assert detection_s(left) is None


def test_outcome_of_a_run_that_was_given_up() -> None:
    assert outcome_of(Ended((Decision("stop", 2, ""),), 1.0, _left(finished=None)), equal=False) == "stopped"
