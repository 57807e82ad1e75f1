"""Note the event ``step``, from which console, TensorBoard and reports take their figures of a step."""

from benchmark.events.event_log import EventLog
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import Observer, StepDone
from model.flops import train_flops_per_token


class StepRecord(Observer):
    """Note each step. Its time includes the work of the observers listed before this one."""

    def __init__(self, state: TrainState, events: EventLog) -> None:
        benchmark, system = state.benchmark, state.system
        self._world, self._progress, self._events = state.world, state.progress, events
        self._tokens = benchmark.tokens_per_step
        self._device_flops = self._tokens * train_flops_per_token(benchmark.model) / system.num_devices
        """Floating-point operations of a step on each device."""
        self._peak_tflops = system.peak_tflops

    def step_done(self, step: StepDone) -> None:
        progress, result, seconds = self._progress, step.result, step.seconds()
        tflops = self._device_flops / seconds / 1e12
        self._events.note(
            "step",
            steps=progress.steps,
            iteration=progress.iteration,
            consumed_samples=progress.consumed_samples,
            trained_tokens=progress.trained_tokens,
            loss=result.loss,
            grad_norm=result.grad_norm,
            learning_rate=result.learning_rate,
            skipped=result.skipped,
            skipped_in_a_row=progress.skipped_in_a_row,
            step_s=seconds,
            tokens_per_s=self._tokens / seconds,
            tflops_per_device=tflops,
            mfu=None if self._peak_tflops is None else tflops / self._peak_tflops,
            memory_gib=self._world.peak_memory_bytes() / 2**30,
        )
