"""The loop, with work that does nothing: what it calls and when, what it logs, how it ends."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.events.event import Event
from benchmark.events.event_log import EventLog
from benchmark.training.checkpoints.run_saves import STEP_PATIENCE_S, STOP_PATIENCE_S
from benchmark.training.engine.run_progress import Progress, starting_progress
from benchmark.training.guards.loss_guards import MOST_SKIPPED_IN_A_ROW
from benchmark.training.guards.spike_detector import Spike
from benchmark.training.guards.state_soundness import StateSoundness
from benchmark.training.loop import Status, run_loop
from benchmark.training.step import EvaluationResult, StepResult
from benchmark.training.step_flags import NO_FLAGS, StepFlags
from tests.benchmark.events.recorder import Recorder
from tests.benchmark.tiny import CPU, SHORT

TOKENS = 12 * 16
"""Of a step."""


class MadeUpWork:
    """Counts its calls; ``of_step`` changes the result of the step with that number."""

    def __init__(
        self,
        values: Sequence[float] = (5.0, 4.0),
        of_step: Callable[[int], dict[str, Any]] = lambda _: {},
        differences: Sequence[str] = (),
        finite: bool = True,
    ) -> None:
        self.calls: list[str] = []
        self.waited_s: list[float] = []
        """How long the loop would have waited for a checkpoint that is still being written."""
        self._finite = finite
        self._values: Iterator[float] = iter(values)
        self._of_step, self._differences = of_step, differences

    def step(self) -> StepResult:
        self.calls.append("step")
        result = StepResult(loss=3.5, grad_norm=0.25, learning_rate=1e-3, skipped=False)
        return dataclasses.replace(result, **self._of_step(self.calls.count("step")))

    def evaluate(self) -> EvaluationResult:
        self.calls.append("evaluate")
        return EvaluationResult(next(self._values), 99)

    def ready_to_save(self, flags: StepFlags, *, patience_s: float) -> bool:
        if flags.writer_busy:
            self.waited_s.append(patience_s)
        return not flags.writer_busy

    def save(self, since: float) -> None:
        self.calls.append("save")

    def is_finite(self) -> bool:
        return self._finite

    def audit(self) -> list[str]:
        self.calls.append("audit")
        return list(self._differences)

    def check_state(self) -> StateSoundness:
        self.calls.append("check_state")
        return StateSoundness(())

    def roll_back(self, spike: Spike) -> None:
        self.calls.append("roll_back")

    def memory_bytes(self) -> int:
        return 3 * 2**29


def configured(benchmark: dict[str, Any] | None = None, **fields: Any) -> RunConfig:
    """Six steps, an evaluation after each third; neither checkpoints nor audits unless asked for."""
    system = dataclasses.replace(CPU, micro_batch_size=2)
    changed = dataclasses.replace(SHORT, **(benchmark or {}))
    return RunConfig(benchmark=changed, system=system, **{"save_interval": 0, "audit_interval": 0, **fields})


def loop(config: RunConfig, work: MadeUpWork, progress: Progress | None = None) -> tuple[Status, Progress, list[Event]]:
    progress = progress or starting_progress(config.benchmark, 1)
    seen: list[Event] = []
    log = EventLog([Recorder(seen.append)])
    status = run_loop(config, progress, log, work)
    log.close()
    return status, progress, seen


def of(seen: Sequence[Event], key: str) -> list[Event]:
    return [event for event in seen if event.key == key]


def test_copies_are_compared_before_each_checkpoint() -> None:
    work = MadeUpWork()
    status, progress, _ = loop(configured(save_interval=2), work)
    checked = ["audit", "save"]
    assert work.calls == [
        *["step", "step", *checked, "step", "evaluate"],
        *["step", *checked, "step", "step", "evaluate", *checked],
    ]
    assert (status, progress.steps, progress.trained_tokens) == ("success", 6, 6 * TOKENS)
    assert [(one.trained_tokens, one.log_perplexity) for one in progress.evaluations] == [
        (3 * TOKENS, 5.0),
        (6 * TOKENS, 4.0),
    ]


def test_audits_come_at_an_interval_of_their_own() -> None:
    work = MadeUpWork()
    loop(configured(audit_interval=3), work)
    assert work.calls == ["step", "step", "step", "evaluate", "audit"] * 2


def test_last_step_is_evaluated_too() -> None:
    work = MadeUpWork()
    _, _, seen = loop(configured({"train_samples": 4005 * 12}), work)
    assert work.calls == ["step"] * 3 + ["evaluate"] + ["step"] * 2 + ["evaluate"]
    stops = [event.metadata for event in of(seen, "block_stop")]
    assert stops == [
        {"first_epoch_num": 0, "epoch_count": 3 * TOKENS},
        {"first_epoch_num": 3 * TOKENS, "epoch_count": 2 * TOKENS},
    ]


def test_target_is_met_at_the_target_itself_and_ends_the_run() -> None:
    for value, expected, steps in ((2.7, "success", 3), (2.7000001, "target not reached", 6)):
        work = MadeUpWork([value, 2.8])
        status, progress, _ = loop(configured({"target_log_perplexity": 2.7}, save_interval=3), work)
        assert (status, progress.steps) == (expected, steps)
        assert work.calls[:4] == ["step", "step", "step", "evaluate"]
        assert ("save" in work.calls) is (expected != "success")


def test_loss_that_is_not_a_number_never_meets_the_target() -> None:
    status, _, _ = loop(configured({"target_log_perplexity": 2.7}), MadeUpWork([float("nan")] * 2))
    assert status == "target not reached"


def test_it_gives_up_after_ten_skipped_steps_in_a_row() -> None:
    long = {"train_samples": 4100 * 12, "eval_interval_samples": 100 * 12}
    work = MadeUpWork(of_step=lambda number: {"skipped": number != MOST_SKIPPED_IN_A_ROW})
    status, progress, seen = loop(configured(long, save_interval=20), work)
    assert MOST_SKIPPED_IN_A_ROW == 10
    assert status == "diverged"
    assert (progress.steps, progress.skipped_steps, progress.skipped_in_a_row) == (20, 19, 10)
    assert progress.consumed_samples == 48_000 + 20 * 12
    assert progress.scheduled_samples == 48_000 + 12
    assert work.calls[-3:] == ["check_state", "audit", "save"]
    (message,) = of(seen, "message")
    assert message.value.startswith("10 steps in a row without finite gradients, from step 4011 on: giving up")
    assert [event.value for event in of(seen, "diagnosis")] == [message.value]


@pytest.mark.parametrize(
    ("save_interval", "last_calls"), [(500, ["audit", "save"]), (None, ["audit", "save"]), (0, [])]
)
def test_request_to_stop_is_met_after_the_step(save_interval: int | None, last_calls: list[str]) -> None:
    work = MadeUpWork(of_step=lambda number: {"flags": StepFlags(sigterm=number == 2)})
    status, progress, _ = loop(configured(save_interval=save_interval), work)
    assert (status, progress.steps) == ("interrupted", 2)
    assert work.calls == ["step", "step", *last_calls]


def saves_after(work: MadeUpWork) -> list[int]:
    """Steps done before each checkpoint."""
    return [work.calls[:place].count("step") for place, call in enumerate(work.calls) if call == "save"]


def test_checkpoints_by_the_clock_on_request_and_after_certain_steps() -> None:
    work = MadeUpWork(of_step=lambda number: {"flags": StepFlags(save=number in (2, 5))})
    loop(configured(save_interval=None, save_at=(3, 5, 600)), work)
    assert saves_after(work) == [2, 3, 5]
    work = MadeUpWork(of_step=lambda number: {"flags": StepFlags(save=number == 2)})
    loop(configured(save_interval=0), work)
    assert saves_after(work) == []


def test_checkpoint_that_is_due_while_one_is_written_comes_later() -> None:
    """Training waits a little where a certain step was asked for, and not at all for one that the clock asks for."""
    busy = {2: StepFlags(writer_busy=True), 3: StepFlags(writer_busy=True)}
    work = MadeUpWork(of_step=lambda number: {"flags": busy.get(number, NO_FLAGS)})
    loop(configured(save_interval=None, save_at=(2,)), work)
    assert (saves_after(work), work.waited_s) == ([4], [STEP_PATIENCE_S] * 2)
    work = MadeUpWork(of_step=lambda number: {"flags": StepFlags(save=number in (2, 3), writer_busy=number == 2)})
    loop(configured(save_interval=None), work)
    assert (saves_after(work), work.waited_s) == ([3], [0.0])
    work = MadeUpWork(of_step=lambda number: {"flags": StepFlags(sigusr2=number == 2, writer_busy=True)})
    status, _, _ = loop(configured(save_interval=None), work)
    assert (status, saves_after(work), work.waited_s) == ("interrupted", [], [STOP_PATIENCE_S])


def test_sound_state_is_saved_when_training_gives_up() -> None:
    long = {"train_samples": 4100 * 12, "eval_interval_samples": 100 * 12}
    for fields, saved, message in (
        ({}, [10], []),
        ({"finite": False}, [], ["after step 4010: weights or moments are not finite: not saved"]),
        ({"differences": ["model/x: ranks 1 differ"]}, [], ["after step 4010: model/x: ranks 1 differ"]),
    ):
        work = MadeUpWork(of_step=lambda _: {"skipped": True}, **fields)
        status, _, seen = loop(configured(long, save_interval=None), work)
        assert (status, saves_after(work)) == ("diverged", saved)
        assert [event.value for event in of(seen, "message")][1:] == message


def test_run_whose_copies_differ_is_not_saved() -> None:
    work = MadeUpWork(differences=["model/x: ranks 1 differ from rank 0"])
    status, _, seen = loop(configured(save_interval=2), work)
    assert (status, work.calls) == ("replicas differ", ["step", "step", "audit"])
    (audit,) = of(seen, "audit")
    assert (audit.metadata["steps"], audit.metadata["differences"]) == (2, ["model/x: ranks 1 differ from rank 0"])
    assert [event.value for event in of(seen, "message")] == ["after step 4002: model/x: ranks 1 differ from rank 0"]


def test_events_of_a_block_and_its_evaluation() -> None:
    _, _, seen = loop(configured(), MadeUpWork())
    block = ["block_start", "tracked_stats", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    assert [event.key for event in seen if event.mlperf] == block * 2
    starts = [event.metadata for event in of(seen, "block_start")]
    assert starts == [{"first_epoch_num": start * TOKENS, "epoch_count": 3 * TOKENS} for start in (0, 3)]
    assert [event.metadata["epoch_num"] for event in of(seen, "eval_accuracy")] == [3 * TOKENS, 6 * TOKENS]
    assert of(seen, "tracked_stats")[1].value["reduced_train_loss"] == 3.5
    evaluation = of(seen, "evaluation")[0].metadata
    assert (evaluation["log_perplexity"], evaluation["scored_tokens"], evaluation["target"]) == (5.0, 99, None)


def test_step_as_it_is_logged() -> None:
    gpu = dataclasses.replace(CPU, micro_batch_size=2, accelerator="A100-80GB")
    _, _, seen = loop(dataclasses.replace(configured(), system=gpu), MadeUpWork())
    steps = of(seen, "step")
    assert [event.metadata["iteration"] for event in steps] == list(range(4001, 4007))
    logged = steps[1].metadata
    assert (logged["consumed_samples"], logged["trained_tokens"]) == (48_024, 2 * TOKENS)
    assert (logged["loss"], logged["grad_norm"], logged["learning_rate"]) == (3.5, 0.25, 1e-3)
    assert logged["tokens_per_s"] == pytest.approx(TOKENS / logged["step_s"])
    assert logged["mfu"] == pytest.approx(logged["tflops_per_device"] / 312)
    assert logged["memory_gib"] == 1.5
    _, _, seen = loop(configured(), MadeUpWork())
    assert of(seen, "step")[0].metadata["mfu"] is None


def test_continued_run_goes_on_inside_its_block() -> None:
    config = configured()
    progress = dataclasses.replace(starting_progress(config.benchmark, 1), steps=2)
    work = MadeUpWork()
    _, _, seen = loop(config, work, progress)
    assert work.calls == ["step", "evaluate", "step", "step", "step", "evaluate"]
    assert [event.metadata["first_epoch_num"] for event in of(seen, "block_start")] == [3 * TOKENS]
