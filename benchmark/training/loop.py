"""The timed loop: step, log, evaluate, stop."""

import time
from typing import Literal, Protocol

from benchmark.config.run_config import RunConfig
from benchmark.events.event_log import EventLog
from benchmark.training.checkpoints.run_saves import STEP_PATIENCE_S, STOP_PATIENCE_S
from benchmark.training.engine.run_progress import Evaluation, Progress
from benchmark.training.guards.loss_guards import Ending, GuardedRun, LossGuards
from benchmark.training.step import EvaluationResult, StepResult
from benchmark.training.step_flags import StepFlags
from model.flops import train_flops_per_token

Status = Literal["success", "completed", "target not reached", "interrupted"] | Ending


class Work(GuardedRun, Protocol):
    """What the loop calls. All are collective: every process calls them at the same step."""

    def step(self) -> StepResult:
        """One optimizer step at the current progress."""
        ...

    def evaluate(self) -> EvaluationResult: ...

    def ready_to_save(self, flags: StepFlags, *, patience_s: float) -> bool:
        """Whether a checkpoint can be begun; waits so long at most for the one being written."""
        ...

    def save(self, since: float) -> None:
        """Begin to write a checkpoint. ``since``: when training paused for it, by time.perf_counter."""
        ...

    def is_finite(self) -> bool:
        """Whether all weights and moments are."""
        ...

    def audit(self) -> list[str]:
        """What differs between copies that must be the same."""
        ...

    def memory_bytes(self) -> int:
        """Most memory this process's device has held."""
        ...


def run_loop(config: RunConfig, progress: Progress, events: EventLog, work: Work) -> Status:
    """Train until the target, the end of training or a request to stop. Counts are advanced in ``progress``.

    Evaluations come every ``eval_interval`` steps since the start, and at the very end; the target is met at or below
    it, as the rules' checker has it (docs/facts/reference.md j.31).
    """
    return _Loop(config, progress, events, work).run()


class _Loop:
    """``run`` is the loop; the methods below it are its parts, in their order."""

    def __init__(self, config: RunConfig, progress: Progress, events: EventLog, work: Work) -> None:
        self.config, self.progress, self.events, self.work = config, progress, events, work
        self.guards = LossGuards(config, progress, events, work, self._replicas_differ)
        self.step_seconds: list[float] = []
        """Of each step since the last evaluation."""
        self.owes_save = False
        """A checkpoint was due after some step, and could not be begun yet."""

    def run(self) -> Status:
        if self.progress.steps == 0:
            self._start_block()
        while not self._is_finished():
            result = self._step()
            if self._is_finished() or self._is_due(self.config.benchmark.eval_interval):
                self._log_block(result.loss)
                if self._evaluate():
                    return "success"
                if not self._is_finished():
                    self._start_block()
            ending = self._guard(result) or self._audit_and_save(result.flags)
            if ending is not None:
                return ending
            if result.flags.stop_by is not None:
                return "interrupted"
        return "completed" if self.config.benchmark.target_log_perplexity is None else "target not reached"

    def _is_finished(self) -> bool:
        return self.progress.finished(self.config.benchmark)

    def _is_due(self, interval: int) -> bool:
        """Whether what is done every ``interval`` steps (0: never) is done after this one."""
        return interval > 0 and self.progress.steps % interval == 0

    def _start_block(self) -> None:
        """A block is what is trained between evaluations; the log's epochs are tokens since the checkpoint."""
        tokens = self.config.benchmark.eval_interval * self.config.tokens_per_step
        self.events.start("block_start", first_epoch_num=self.progress.trained_tokens, epoch_count=tokens)

    def _step(self) -> StepResult:
        """One step, counted and logged."""
        progress, started = self.progress, time.perf_counter()
        result = self.work.step()
        progress.steps += 1
        progress.skipped_steps += result.skipped
        progress.skipped_in_a_row = progress.skipped_in_a_row + 1 if result.skipped else 0
        self.step_seconds.append(time.perf_counter() - started)
        self._log_step(result, self.step_seconds[-1])
        return result

    def _log_step(self, result: StepResult, seconds: float) -> None:
        config, progress = self.config, self.progress
        tokens_per_s = config.tokens_per_step / seconds
        flops = tokens_per_s * train_flops_per_token(config.benchmark.model) / config.system.num_devices
        peak = config.system.peak_tflops
        self.events.note(
            "step",
            iteration=progress.iteration,
            consumed_samples=progress.consumed_samples,
            trained_tokens=progress.trained_tokens,
            loss=result.loss,
            grad_norm=result.grad_norm,
            learning_rate=result.learning_rate,
            skipped=result.skipped,
            skipped_in_a_row=progress.skipped_in_a_row,
            step_s=seconds,
            tokens_per_s=tokens_per_s,
            tflops_per_device=flops / 1e12,
            mfu=None if peak is None else flops / 1e12 / peak,
            memory_gib=self.work.memory_bytes() / 2**30,
        )

    def _log_block(self, loss: float) -> None:
        """What the log keeps of the steps since the last evaluation; ``loss``: of the last of them."""
        mean_step_s = sum(self.step_seconds) / len(self.step_seconds)
        self.step_seconds.clear()
        stats = {
            "train_step_timing": mean_step_s,
            "throughput": self.config.tokens_per_step / mean_step_s,
            "reduced_train_loss": loss,
        }
        self.events.point("tracked_stats", stats, step=self.progress.trained_tokens)

    def _evaluate(self) -> bool:
        """Evaluate and log; whether the target is met."""
        progress, benchmark, events = self.progress, self.config.benchmark, self.events
        tokens, target = progress.trained_tokens, benchmark.target_log_perplexity
        steps_before = (progress.steps - 1) // benchmark.eval_interval * benchmark.eval_interval
        started_at = steps_before * self.config.tokens_per_step
        events.end("block_stop", first_epoch_num=started_at, epoch_count=tokens - started_at)
        events.start("eval_start", epoch_num=tokens)
        started = time.perf_counter()
        result = self.work.evaluate()
        seconds = time.perf_counter() - started
        progress.evaluations.append(Evaluation(tokens, result.log_perplexity))
        events.point("eval_accuracy", result.log_perplexity, epoch_num=tokens)
        events.end("eval_stop", epoch_num=tokens)
        events.note(
            "evaluation",
            trained_tokens=tokens,
            log_perplexity=result.log_perplexity,
            scored_tokens=result.scored_tokens,
            target=target,
            seconds=seconds,
        )
        return target is not None and result.log_perplexity <= target

    def _guard(self, result: StepResult) -> Ending | None:
        """How a step whose loss or gradient is not as usual ends the run; None where it goes on."""
        return self.guards.after_step(
            result.loss,
            result.grad_norm,
            result.learning_rate,
            result.nonfinite,
            save=lambda: self._save_if_sound(result.flags),
        )

    def _save_if_sound(self, flags: StepFlags) -> None:
        """Begin a checkpoint of a state in doubt, before training ends or goes back: if its copies are equal and all
        of it is finite. ``flags``: of the step just done. Collective."""
        if not self.config.saves or not self.work.ready_to_save(flags, patience_s=STOP_PATIENCE_S):
            return
        since = time.perf_counter()
        if not self.work.is_finite():
            text = f"after step {self.progress.iteration}: weights or moments are not finite: not saved"
            self.events.note("message", text)
        elif not self._replicas_differ():
            self.work.save(since)

    def _audit_and_save(self, flags: StepFlags) -> Literal["replicas differ"] | None:
        """Compare the copies and begin a checkpoint, where either is due or asked for; nothing is saved unaudited."""
        config, stops = self.config, flags.stop_by is not None
        self.owes_save |= self._is_due(config.save_interval or 0) or self.progress.steps in config.save_at
        patience_s = STOP_PATIENCE_S if stops else STEP_PATIENCE_S if self.owes_save else 0.0
        wanted = config.saves and (self.owes_save or stops or flags.save)
        saves = wanted and self.work.ready_to_save(flags, patience_s=patience_s)
        since = time.perf_counter()
        if (saves or self._is_due(config.audit_interval)) and self._replicas_differ():
            return "replicas differ"
        if saves:
            self.work.save(since)
            self.owes_save = False
        return None

    def _replicas_differ(self) -> bool:
        """Compare all copies and log it; a run whose copies differ is not worth continuing or saving."""
        started = time.perf_counter()
        differences = self.work.audit()
        seconds = time.perf_counter() - started
        self.events.note("audit", steps=self.progress.steps, differences=differences, seconds=seconds)
        for difference in differences:
            self.events.note("message", f"after step {self.progress.iteration}: {difference}")
        return bool(differences)
