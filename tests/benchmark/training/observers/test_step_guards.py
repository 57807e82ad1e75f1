"""The guards with a run that does nothing: what they say, what they ask of it, how it ends."""

import dataclasses
from collections.abc import Sequence

import pytest

from benchmark.config.run_config import OnSpike, RunConfig, Submission
from benchmark.events.event import Event
from benchmark.events.event_log import EventLog
from benchmark.training.engine.run_progress import Progress, Rollback, starting_progress
from benchmark.training.guards.loss_guards import Ending, LossGuards
from benchmark.training.guards.nonfinite_step import NonFiniteStep
from benchmark.training.guards.spike_detector import Spike
from benchmark.training.guards.state_soundness import StateSoundness, UnsoundTensor
from tests.benchmark.events.recorder import Recorder
from tests.benchmark.tiny import CPU, TINY
from tests.benchmark.training.guards.findings import on_rank, skipped
from tests.benchmark.training.guards.test_spike_detector import quiet

SOUND = StateSoundness(())
DAMAGED = StateSoundness((UnsoundTensor("model/x", 3, "n3", 12, 0.5),))


class GuardedSteps:
    """Guards, the run that they guard, and what came of it."""

    def __init__(
        self,
        policy: OnSpike = "note",
        *,
        state: StateSoundness = SOUND,
        differ: bool = False,
        rollbacks: Sequence[Rollback] = (),
    ) -> None:
        system = dataclasses.replace(CPU, micro_batch_size=2)
        self.config = RunConfig(
            benchmark=dataclasses.replace(TINY, train_samples=4900 * 12),
            system=system,
            train_data_path=("data",),
            on_spike=policy,
            submission=Submission(submission_division="open"),
        )
        self.progress: Progress = starting_progress(TINY, 7)
        self.progress.rollbacks.extend(rollbacks)
        self.calls: list[str] = []
        self.seen: list[Event] = []
        self.log = EventLog([Recorder(self.seen.append)])
        self._state, self._differ = state, differ
        self.guards = LossGuards(self.config, self.progress, self.log, self, self._audit)

    def _audit(self) -> bool:
        self.calls.append("audit")
        return self._differ

    def check_state(self) -> StateSoundness:
        self.calls.append("check_state")
        return self._state

    def roll_back(self, spike: Spike) -> None:
        self.calls.append(f"roll_back {spike.began}")

    def step(self, loss: float, norm: float, nonfinite: NonFiniteStep | None = None) -> Ending | None:
        self.progress.steps += 1
        self.progress.skipped_in_a_row = 0 if nonfinite is None else self.progress.skipped_in_a_row + 1
        return self.guards.after_step(loss, norm, 3e-4, nonfinite, lambda: self.calls.append("save"))

    def quiet_then(self, *figures: tuple[float, float]) -> Ending | None:
        """The ending after 60 quiet steps and these; nothing ends it before."""
        endings = [self.step(*one) for one in [*quiet(60), *figures]]
        assert not any(endings[:-1])
        return endings[-1]

    def of(self, key: str) -> list[Event]:
        self.log.close()
        return [event for event in self.seen if event.key == key]

    def said(self) -> list[str]:
        return [str(event.value) for event in self.of("message")]


def test_quiet_steps_ask_for_nothing() -> None:
    run = GuardedSteps("stop")
    assert run.quiet_then((2.2, 0.25)) is None
    assert (run.calls, run.of("spike"), run.said()) == ([], [], [])


@pytest.mark.parametrize(
    ("policy", "ending", "calls", "words"),
    [
        ("note", None, ["audit", "check_state"], "Going on (--on-spike note)"),
        ("stop", "spike", ["audit", "check_state", "save"], "Stopping (--on-spike stop)"),
        ("skip-data", "rolled back", ["audit", "check_state", "roll_back 61"], "leaving out the samples since"),
        ("lower-rate", "rolled back", ["audit", "check_state", "roll_back 61"], "on at a lower learning rate"),
    ],
)
def test_what_a_spike_leads_to(policy: OnSpike, ending: Ending | None, calls: list[str], words: str) -> None:
    run = GuardedSteps(policy)
    assert run.quiet_then((2.22, 0.947), (2.6, 2.39)) == ending
    assert run.calls == calls
    (line,) = run.said()
    assert line.startswith("spike at step 4062, since step 4061: loss 2.600 where 2.20")
    assert "gradient norm 2.39, 10" in line or "gradient norm 2.39, 9" in line
    assert words in line
    assert "python -m data_prep samples --data-path data" in line
    assert "--first 48720 --count 24" in line
    (event,) = run.of("spike")
    assert (event.metadata["policy"], event.metadata["steps"], event.metadata["began"]) == (policy, 62, 61)
    assert event.metadata["samples"] == [48_720, 48_744]
    assert not event.mlperf


def test_sudden_jump_of_both_is_told_with_the_audit() -> None:
    run = GuardedSteps()
    assert run.quiet_then((9.0, 60.0)) is None
    first, second = run.said()
    assert "both jumped in one step, as a flipped bit in a weight makes them: an audit compares all copies now" in first
    assert second == "audit: all copies agree, and weights and moments are of normal size"
    assert run.of("spike")[0].metadata["sudden"] is True


@pytest.mark.parametrize("policy", ["note", "stop", "skip-data"])
def test_copies_that_differ_end_the_run_unsaved(policy: OnSpike) -> None:
    run = GuardedSteps(policy, differ=True)
    assert run.quiet_then((9.0, 60.0)) == "replicas differ"
    assert run.calls == ["audit"]


def test_spike_of_a_damaged_state_ends_the_run_unsaved() -> None:
    run = GuardedSteps("stop", state=DAMAGED)
    assert run.quiet_then((9.0, 60.0)) == "state damaged"
    assert run.calls == ["audit", "check_state"]
    assert "model/x on rank 3 (n3): 12 values not finite" in run.said()[-1]


def test_third_spike_at_a_place_stops_with_words() -> None:
    before = [Rollback(48, 58, 48_000, 48_000), Rollback(48, 59, 48_000, 48_000)]
    run = GuardedSteps("lower-rate", rollbacks=before)
    assert run.quiet_then((9.0, 60.0)) == "spike"
    assert run.calls == ["audit", "check_state", "save"]
    assert "The run went back 2 times from spikes within 64 steps of this one, and it came again" in run.said()[0]


def test_end_of_a_spike_is_told() -> None:
    run = GuardedSteps()
    run.quiet_then((9.0, 60.0), (5.0, 3.0), *quiet(8, seed=4))
    assert run.said()[-1] == "the spike that began at step 4061 is over: it lasted 2 steps"
    assert run.of("spike_over")[0].metadata["lasted"] == 2
    run = GuardedSteps()
    run.quiet_then(*[(9.0, 60.0)] * 65)
    assert run.said()[-1].startswith("loss or gradient norm has not come back since step 4061")


def test_wall_has_a_line_at_its_beginning_and_one_at_its_end() -> None:
    run = GuardedSteps()
    run.quiet_then((2.2, 0.25))
    endings = [run.step(2.2, float("nan"), skipped(on_rank(2))) for _ in range(10)]
    assert endings == [None] * 9 + ["diverged"]
    assert run.calls == ["check_state", "check_state", "save"]
    first, last = run.said()
    assert first.startswith("step 4062 skipped: NaN in layers.0.qkv.weight (1 of 53 parameters) held by rank 2 (n2)")
    assert "Its samples: python -m data_prep samples" in first
    assert last.startswith("10 steps in a row without finite gradients, from step 4062 on: giving up")
    assert "suspect that device" in last
    assert [event.value for event in run.of("diagnosis")] == [last]
    each = run.of("nonfinite")
    assert [event.metadata["iteration"] for event in each] == list(range(4062, 4072))
    assert each[0].metadata["ranks"][0]["host"] == "n2"
    assert each[0].metadata["samples_command"] in first


def test_damaged_state_ends_the_run_at_the_first_skipped_step_unsaved() -> None:
    run = GuardedSteps(state=DAMAGED)
    assert run.step(2.2, float("nan"), skipped()) == "state damaged"
    assert run.calls == ["check_state"]
    assert run.of("diagnosis")[0].metadata["damaged"][0]["name"] == "model/x"


def test_wall_that_ends_by_itself_is_told() -> None:
    run = GuardedSteps()
    for _ in range(3):
        run.step(2.2, float("inf"), skipped(on_rank(0)))
    run.step(2.2, 0.25)
    run.step(2.2, float("inf"), skipped(on_rank(0)))
    run.step(2.2, 0.25)
    first, second, third = run.said()
    assert first.startswith("step 4001 skipped") and third.startswith("step 4005 skipped")
    assert second == "gradients are finite again, after 3 skipped steps"


def test_skipped_steps_are_not_judged_as_spikes() -> None:
    run = GuardedSteps("stop")
    run.quiet_then((2.2, 0.25))
    assert run.step(float("nan"), float("nan"), skipped(on_rank(0))) is None
    assert run.of("spike") == []


def test_event_of_all_ranks_stays_small() -> None:
    ranks = 2048
    run = GuardedSteps()
    names = tuple(f"transformer.layers.{number}.attention.query_key_value.weight" for number in range(8))
    run.step(2.2, float("nan"), skipped(*[on_rank(rank, names, tuple(range(8))) for rank in range(ranks)]))
    (event,) = run.of("nonfinite")
    assert event.metadata["num_ranks"] == ranks
    assert len(repr(event.metadata)) < 50_000
    assert len(run.said()[0]) < 2000
