"""The guards of loss and gradients with made-up steps: what they say, what they look at, how the run ends."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.unsound_values import (
    BadMicroBatch,
    BadPart,
    NonFiniteStep,
    RankFindings,
    StateSoundness,
    UnsoundTensor,
)
from benchmark.training.observer import FinishedStep
from benchmark.training.observers import skipped_steps, spikes
from benchmark.training.observers.skipped_steps import (
    describe_state,
    describe_step,
    samples_command,
    suspected_samples,
)
from benchmark.training.step import StepResult
from tests.benchmark.llama import TINY_LLAMA
from tests.benchmark.run_record.events.recorder import Recorder
from tests.benchmark.tiny import TINY
from tests.benchmark.training.observers.test_spikes import quiet

SOUND = StateSoundness(())
DAMAGED = StateSoundness((UnsoundTensor("model/x", 3, "n3", 12, 0.5),))
DIFFER = StopReason("failed", "copies differ")
QKV = "layers.0.qkv.weight"


def on_rank(
    rank: int, parameters: tuple[str, ...] = (QKV,), micro_batches: tuple[int, ...] = (), nans: int = 5
) -> RankFindings:
    """Of a rank that reads as data-parallel rank of the same number, two samples per micro-batch."""
    return RankFindings(
        rank=rank,
        host=f"n{rank}",
        data_rank=rank,
        parts=tuple(BadPart(name, nans, 0 if nans else 3) for name in parameters),
        num_parts=len(parameters),
        num_parameters=53,
        micro_batches=tuple(BadMicroBatch(number, 1000 + 10 * number + 2 * rank, 2) for number in micro_batches),
        num_micro_batches=len(micro_batches),
    )


def skipped(*ranks: RankFindings, data_parallel: int = 4) -> NonFiniteStep:
    return NonFiniteStep(first_sample=1000, num_samples=40, data_parallel=data_parallel, ranks=ranks)


@pytest.mark.parametrize(
    ("step", "words", "samples"),
    [
        (
            skipped(on_rank(1)),
            f"NaN in {QKV} (1 of 53 parameters) held by rank 1 (n1); the loss of every micro-batch was finite, and a "
            "sum over 4 data-parallel ranks does not tell whose gradient it was",
            (1000, 40),
        ),
        (
            skipped(on_rank(0, nans=0), data_parallel=1),
            f"inf in {QKV} (1 of 53 parameters) held by rank 0 (n0); the loss of every micro-batch was finite",
            (1000, 40),
        ),
        (
            skipped(on_rank(0), on_rank(2, micro_batches=(1, 3))),
            f"NaN in {QKV} (1 of 53 parameters) held by ranks 0 (n0), 2 (n2); the loss was not finite in micro-batch 1 "
            "of rank 2 (n2), samples 1014 to 1015, micro-batch 3 of rank 2 (n2), samples 1034 to 1035",
            (1014, 22),
        ),
        (
            skipped(*[on_rank(rank, tuple("abcdefgh")) for rank in range(5)]),
            "NaN in a, b, c and 5 more (8 of 53 parameters) held by ranks 0 (n0), 1 (n1), 2 (n2) and 2 more; the loss "
            "of every micro-batch was finite, and a sum over 4 data-parallel ranks does not tell whose gradient it was",
            (1000, 40),
        ),
        (
            skipped(),
            "no rank holds a gradient or a loss that is not finite: it was their sum over the ranks that was not. "
            "Suspect a link or a device",
            (1000, 40),
        ),
    ],
)
def test_a_skipped_step_in_words(step: NonFiniteStep, words: str, samples: tuple[int, int]) -> None:
    assert (describe_step(step), suspected_samples(step)) == (words, samples)


def test_command_that_prints_the_samples() -> None:
    words = samples_command(("0.5", "a b", "0.5", "c"), TINY, 17, 48_012, 12)
    assert words == (
        "python -m data_prep samples --data-path 0.5 'a b' 0.5 c --seq-length 16 --num-samples 48144 --seed 17 "
        "--first 48012 --count 12 --documents --output samples.npy"
    )
    assert " --plus-one --shuffle-documents " in samples_command(("a",), TINY_LLAMA, 17, 12, 12)


class GuardedSteps:
    """Both guards, what they are shown and what they say."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, found: StateSoundness = SOUND, copies: StopReason | None = None
    ) -> None:
        self.progress = starting_progress(TINY, 7)
        self.calls: list[str] = []
        self.seen: list[Event] = []
        self.log = EventLog([Recorder(self.seen.append)])
        state: Any = SimpleNamespace(progress=self.progress)
        samples = partial(samples_command, ("data",), TINY, 7)

        def check_state(_: Any) -> StateSoundness:
            self.calls.append("check_state")
            return found

        def compare() -> StopReason | None:
            self.calls.append("audit")
            return copies

        for module in (skipped_steps, spikes):
            monkeypatch.setattr(module, "check_state", check_state)
        self.guards = (
            skipped_steps.SkippedStepGuard(state, self.log, PhaseLog(), samples),
            spikes.SpikeGuard(state, self.log, PhaseLog(), compare, samples),
        )

    def step(self, loss: float, norm: float, nonfinite: NonFiniteStep | None = None) -> StopReason | None:
        self.progress.count_step(skipped=nonfinite is not None)
        result = StepResult(loss, norm, 3e-4, nonfinite is not None, nonfinite=nonfinite)
        ends = [guard.between_steps(FinishedStep(result, 0, 0.0)) for guard in self.guards]
        return next((end for end in ends if end is not None), None)

    def quiet_then(self, *figures: tuple[float, float]) -> StopReason | None:
        """How the run ends after 60 quiet steps and these; nothing ends it before."""
        ends = [self.step(*one) for one in [*quiet(60), *figures]]
        assert not any(ends[:-1])
        return ends[-1]

    def of(self, key: str) -> list[Event]:
        self.log.close()
        return [event for event in self.seen if event.key == key]

    def said(self) -> list[str]:
        return [str(event.value) for event in self.of("message")]


def test_spike_is_noted_and_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GuardedSteps(monkeypatch)
    assert run.quiet_then((2.22, 0.947)) is None
    assert run.step(float("nan"), float("nan"), skipped(on_rank(0))) is None  # is judged as no spike
    assert run.calls == ["check_state"]
    run = GuardedSteps(monkeypatch)
    assert run.quiet_then((2.22, 0.947), (2.6, 2.39)) is None
    assert run.calls == ["audit", "check_state"]
    (line,) = run.said()
    assert line.startswith("spike at step 62: loss 2.600 where 2.20")
    assert "gradient norm 2.39, 10" in line or "gradient norm 2.39, 9" in line
    assert "python -m data_prep samples --data-path data" in line
    assert "--first 48720 --count 24" in line
    (event,) = run.of("spike")
    assert (event.metadata["steps"], event.metadata["in_a_row"]) == (62, 2)
    assert event.metadata["samples"] == [48_720, 48_744]
    assert not event.mlperf


def test_copies_that_differ_or_a_damaged_state_end_the_run_at_a_spike(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GuardedSteps(monkeypatch, copies=DIFFER)
    assert run.quiet_then((9.0, 60.0)) == DIFFER
    assert run.calls == ["audit"]
    run = GuardedSteps(monkeypatch, found=DAMAGED)
    end = run.quiet_then((9.0, 60.0))
    assert end is not None and end.ending == "failed"
    assert "model/x on rank 3 (n3): 12 values not finite" in end.why
    assert "model/x on rank 3 (n3): 12 values not finite" in run.said()[-1]
    flipped = StateSoundness((UnsoundTensor("model/x", 3, "n3", 0, 1.7e38),))
    assert "a value of 1.7e+38, as a flipped bit makes" in describe_state(flipped)


def test_ten_skipped_steps_in_a_row_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GuardedSteps(monkeypatch)
    ends = [run.step(2.2, float("nan"), skipped(on_rank(1))) for _ in range(10)]
    assert ends[:-1] == [None] * 9
    end = ends[-1]
    assert end is not None and end.ending == "failed"
    assert end.why.startswith("10 steps in a row without finite gradients, from step 1 on: weights and moments are ")
    assert "held by rank 1 (n1)" in end.why
    assert run.calls == ["check_state", "check_state"]  # at the first and at the last
    assert [event.value for event in run.of("diagnosis")] == [end.why]
    first, last = run.said()
    assert run.of("nonfinite")[0].metadata["samples_command"] in first
    assert last == end.why


def test_damaged_state_ends_the_run_at_the_first_skipped_step(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GuardedSteps(monkeypatch, found=DAMAGED)
    end = run.step(2.2, float("nan"), skipped())
    assert end is not None and end.ending == "failed"
    assert run.calls == ["check_state"]
    assert run.of("diagnosis")[0].metadata["damaged"][0]["name"] == "model/x"


def test_wall_that_ends_by_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GuardedSteps(monkeypatch)
    for _ in range(3):
        run.step(2.2, float("inf"), skipped(on_rank(0)))
    run.step(2.2, 0.25)
    run.step(2.2, float("inf"), skipped(on_rank(0)))
    run.step(2.2, 0.25)
    first, second, third = run.said()
    assert first.startswith("step 1 skipped") and third.startswith("step 5 skipped")
    assert second == "gradients are finite again, after 3 skipped steps"


def test_event_of_all_ranks_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    run = GuardedSteps(monkeypatch)
    names = tuple(f"transformer.layers.{number}.attention.query_key_value.weight" for number in range(8))
    run.step(2.2, float("nan"), skipped(*[on_rank(rank, names, tuple(range(8))) for rank in range(2048)]))
    (event,) = run.of("nonfinite")
    assert event.metadata["num_ranks"] == 2048
    assert len(repr(event.metadata)) < 50_000
    assert len(run.said()[0]) < 2000
