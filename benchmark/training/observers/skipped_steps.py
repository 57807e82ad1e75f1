"""Report steps that are skipped because their gradients are not finite, and end the run after too many in a row.

The report names the values that were not finite and their ranks. Every process decides for itself and all decide the
same, because a step's figures are equal on all of them.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from benchmark.config.benchmark_config import Benchmark
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.train_state import TrainState
from benchmark.training.engine.unsound_values import NonFiniteStep, RankFindings, StateSoundness, check_state
from benchmark.training.observer import FinishedStep, Observer

MOST_SKIPPED_IN_A_ROW = 10
"""A run does not recover by itself after this many steps in a row without finite gradients."""
MOST_RANKS_IN_EVENT = 16
MOST_IN_A_LINE = 3
"""Most ranks, parameters or micro-batches that a line names; the event lists more."""


class SkippedStepGuard(Observer):
    """Report each skipped step, and end a run that skips all of them."""

    def __init__(
        self, state: TrainState, events: EventLog, phases: PhaseLog, samples_command: Callable[[int, int], str]
    ) -> None:
        """``samples_command``: function of the first sample and a count that returns the command to write these
        samples."""
        self._state, self._events, self._phases, self._samples_command = state, events, phases, samples_command
        self._in_a_row = 0
        """Number of consecutive steps up to now that this process saw skipped."""

    def between_steps(self, step: FinishedStep) -> StopReason | None:
        """Report a skipped step. Collective after the first skipped step in a row, and after the last that is
        allowed."""
        if step.result.nonfinite is None:
            if self._in_a_row > 1:
                self._events.note("message", f"gradients are finite again, after {self._in_a_row} skipped steps")
            self._in_a_row = 0
            return None
        self._in_a_row += 1
        finding = self._note(step.result.nonfinite)
        in_a_row = self._state.progress.skipped_in_a_row
        if 1 < in_a_row < MOST_SKIPPED_IN_A_ROW:
            return None
        self._phases.enter("audit", self._state.progress.steps)
        state = check_state(self._state)
        if in_a_row == 1 and not state.tensors:
            return None
        steps_done = self._state.progress.steps
        steps = "a step" if in_a_row == 1 else f"{in_a_row} steps in a row"
        text = f"{steps} without finite gradients, from step {steps_done - in_a_row + 1} on: {describe_state(state)}"
        text += f"; in the last of them, {finding}; this state was not saved"
        damaged = [asdict(tensor) for tensor in state.tensors[:MOST_RANKS_IN_EVENT]]
        self._events.note("diagnosis", text, steps=steps_done, skipped_in_a_row=in_a_row, damaged=damaged)
        self._events.warn(text)
        return StopReason("failed", text)

    def _note(self, nonfinite: NonFiniteStep) -> str:
        """Note the event of a skipped step, and print a line for the first in a row; return a description of the
        finding."""
        progress = self._state.progress
        text = describe_step(nonfinite)
        command = self._samples_command(*suspected_samples(nonfinite))
        self._events.note(
            "nonfinite",
            text,
            steps=progress.steps,
            first_sample=nonfinite.first_sample,
            num_samples=nonfinite.num_samples,
            losses_finite=nonfinite.losses_finite,
            num_ranks=len(nonfinite.ranks),
            ranks=[asdict(rank) for rank in nonfinite.ranks[:MOST_RANKS_IN_EVENT]],
            samples_command=command,
        )
        if progress.skipped_in_a_row == 1:
            self._events.warn(f"step {progress.steps} skipped: {text}. Its samples: {command}")
        return text


def describe_step(step: NonFiniteStep) -> str:
    """Describe in one line the values that were not finite, their ranks, and the samples that could have caused
    them."""
    if not step.ranks:
        return (
            "no rank holds a gradient or a loss that is not finite: it was their sum over the ranks that was not. "
            "Suspect a link or a device"
        )
    holders = [rank for rank in step.ranks if rank.num_parts]
    kinds = " and ".join(
        kind for kind, count in (("NaN", _count(holders, "nans")), ("inf", _count(holders, "infs"))) if count
    )
    sentences = [f"{kinds} in {_parameters(holders)} held by {_ranks(holders)}"] if holders else []
    computing_ranks = [rank for rank in step.ranks if rank.num_micro_batches]
    if computing_ranks:
        sentences.append(f"the loss was not finite in {_micro_batches(computing_ranks)}")
    elif step.data_parallel == 1:
        sentences.append("the loss of every micro-batch was finite")
    else:
        sentences.append(
            f"the loss of every micro-batch was finite, and a sum over {step.data_parallel} data-parallel ranks does "
            "not tell whose gradient it was"
        )
    return "; ".join(sentences)


def suspected_samples(step: NonFiniteStep) -> tuple[int, int]:
    """Return the first sample and the number of samples of a range that holds all samples whose loss was not finite.

    If the micro-batches are not all known, the range is the whole step's.
    """
    batches = [batch for rank in step.ranks for batch in rank.micro_batches]
    is_complete = all(rank.num_micro_batches == len(rank.micro_batches) for rank in step.ranks)
    if not batches or not is_complete:
        return step.first_sample, step.num_samples
    first_sample = min(batch.first_sample for batch in batches)
    return first_sample, max(batch.first_sample + batch.count for batch in batches) - first_sample


def samples_command(data_path: Sequence[str], benchmark: Benchmark, seed: int, first_sample: int, count: int) -> str:
    """Return the command that writes these samples and names the documents that they are made of."""
    words: list[object] = ["python", "-m", "data_prep", "samples", "--data-path", *data_path]
    words += ["--seq-length", benchmark.model.seq_length, "--num-samples", benchmark.ordered_samples]
    words += ["--plus-one"] * benchmark.labels_last_token + ["--shuffle-documents"] * benchmark.shuffle_documents
    words += ["--seed", seed, "--first", first_sample, "--count", count, "--documents", "--output", "samples.npy"]
    return shlex.join(str(word) for word in words)


def describe_state(state: StateSoundness) -> str:
    """Describe in one line which tensors of the state are damaged, on which ranks; or say that the state is sound."""
    if not state.tensors:
        return "weights and moments are finite and of normal size"
    worst = [tensor for tensor in state.tensors if tensor.nonfinite] or list(state.tensors)
    named = ", ".join(
        f"{tensor.name} on rank {tensor.rank} ({tensor.host}): "
        + (
            f"{tensor.nonfinite} values not finite"
            if tensor.nonfinite
            else f"a value of {tensor.largest:.1e}, as a flipped bit makes"
        )
        for tensor in worst[:MOST_IN_A_LINE]
    )
    return f"weights or moments are damaged: {named}{_remainder(len(worst))}"


def _ranks(findings: Sequence[RankFindings]) -> str:
    named = ", ".join(f"{finding.rank} ({finding.host})" for finding in findings[:MOST_IN_A_LINE])
    return f"rank{'s' if len(findings) > 1 else ''} {named}{_remainder(len(findings))}"


def _parameters(holders: Sequence[RankFindings]) -> str:
    names = list(dict.fromkeys(part.parameter for finding in holders for part in finding.parts))
    number = max(finding.num_parts for finding in holders)
    of = max(finding.num_parameters for finding in holders)
    return f"{', '.join(names[:MOST_IN_A_LINE])}{_remainder(len(names))} ({number} of {of} parameters)"


def _micro_batches(computed: Sequence[RankFindings]) -> str:
    named = [
        f"micro-batch {batch.number} of rank {finding.rank} ({finding.host}), samples {batch.first_sample} to "
        f"{batch.first_sample + batch.count - 1}"
        for finding in computed
        for batch in finding.micro_batches
    ]
    return f"{', '.join(named[:MOST_IN_A_LINE])}{_remainder(sum(finding.num_micro_batches for finding in computed))}"


def _remainder(number: int) -> str:
    return f" and {number - MOST_IN_A_LINE} more" if number > MOST_IN_A_LINE else ""


def _count(findings: Iterable[RankFindings], field: str) -> int:
    return sum(getattr(part, field) for finding in findings for part in finding.parts)
