"""Report steps that are skipped because their gradients are not finite, and end the run after too many in a row.

The report says what was not finite and where. Every process decides for itself and all decide the same, because a
step's figures are equal on all of them.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from benchmark.config.benchmark_config import Benchmark
from benchmark.run_record.endings import RunEnd
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.train_state import TrainState
from benchmark.training.engine.unsound_values import NonFiniteStep, RankFindings, StateSoundness, check_state
from benchmark.training.observer import Observer, StepDone

MOST_SKIPPED_IN_A_ROW = 10
"""A run does not recover by itself after this many steps in a row without finite gradients."""
MOST_RANKS_IN_EVENT = 16
MOST_IN_A_LINE = 3
"""Most ranks, parameters or micro-batches that a line names; the event lists more."""


class SkipGuard(Observer):
    """Report each skipped step, and end a run that skips all of them."""

    def __init__(
        self, state: TrainState, events: EventLog, phases: PhaseLog, samples_command: Callable[[int, int], str]
    ) -> None:
        """``samples_command``: function of the first sample and a count that returns the command to write these
        samples."""
        self._state, self._events, self._phases, self._samples_command = state, events, phases, samples_command
        self._in_a_row = 0
        """Number of consecutive steps up to now that this process saw skipped."""

    def between_steps(self, step: StepDone) -> RunEnd | None:
        """Report a skipped step. Collective after the first skipped step in a row, and after the last that is
        allowed."""
        if step.result.nonfinite is None:
            if self._in_a_row > 1:
                self._events.note("message", f"gradients are finite again, after {self._in_a_row} skipped steps")
            self._in_a_row = 0
            return None
        self._in_a_row += 1
        found = self._note(step.result.nonfinite)
        in_a_row = self._state.progress.skipped_in_a_row
        if 1 < in_a_row < MOST_SKIPPED_IN_A_ROW:
            return None
        self._phases.enter("audit", self._state.progress.steps)
        state = check_state(self._state)
        if in_a_row == 1 and not state.tensors:
            return None
        done = self._state.progress.steps
        steps = "a step" if in_a_row == 1 else f"{in_a_row} steps in a row"
        text = f"{steps} without finite gradients, from step {done - in_a_row + 1} on: {describe_state(state)}"
        text += f"; in the last of them, {found}; nothing of it was saved"
        damaged = [asdict(one) for one in state.tensors[:MOST_RANKS_IN_EVENT]]
        self._events.note("diagnosis", text, steps=done, skipped_in_a_row=in_a_row, damaged=damaged)
        self._events.warn(text)
        return RunEnd("failed", text)

    def _note(self, found: NonFiniteStep) -> str:
        """Note the event of a skipped step, and print a line for the first in a row; return a description of the
        finding."""
        progress = self._state.progress
        text = describe_step(found)
        command = self._samples_command(*suspected_samples(found))
        self._events.note(
            "nonfinite",
            text,
            steps=progress.steps,
            first_sample=found.first_sample,
            num_samples=found.num_samples,
            losses_finite=found.losses_finite,
            num_ranks=len(found.ranks),
            ranks=[asdict(one) for one in found.ranks[:MOST_RANKS_IN_EVENT]],
            samples_command=command,
        )
        if progress.skipped_in_a_row == 1:
            self._events.warn(f"step {progress.steps} skipped: {text}. Its samples: {command}")
        return text


def describe_step(step: NonFiniteStep) -> str:
    """Describe in one line what was not finite, where, and which samples could have caused it."""
    if not step.ranks:
        return (
            "no rank holds a gradient or a loss that is not finite: it was their sum over the ranks that was not. "
            "Suspect a link or a device"
        )
    holders = [one for one in step.ranks if one.num_parts]
    kinds = " and ".join(
        kind for kind, found in (("NaN", _count(holders, "nans")), ("inf", _count(holders, "infs"))) if found
    )
    said = [f"{kinds} in {_parameters(holders)} held by {_ranks(holders)}"] if holders else []
    computed = [one for one in step.ranks if one.num_micro_batches]
    if computed:
        said.append(f"the loss was not finite in {_micro_batches(computed)}")
    elif step.data_parallel == 1:
        said.append("the loss of every micro-batch was finite")
    else:
        said.append(
            f"the loss of every micro-batch was finite, and a sum over {step.data_parallel} data-parallel ranks does "
            "not tell whose gradient it was"
        )
    return "; ".join(said)


def suspected_samples(step: NonFiniteStep) -> tuple[int, int]:
    """Return the first sample and the number of samples of a range that holds all samples whose loss was not finite.

    If the micro-batches are not all known, the range is the whole step's.
    """
    found = [batch for one in step.ranks for batch in one.micro_batches]
    complete = all(one.num_micro_batches == len(one.micro_batches) for one in step.ranks)
    if not found or not complete:
        return step.first_sample, step.num_samples
    first = min(batch.first_sample for batch in found)
    return first, max(batch.first_sample + batch.count for batch in found) - first


def samples_command(data_path: Sequence[str], benchmark: Benchmark, seed: int, first: int, count: int) -> str:
    """Return the command that writes these samples and names the documents that they are made of."""
    words: list[object] = ["python", "-m", "data_prep", "samples", "--data-path", *data_path]
    words += ["--seq-length", benchmark.model.seq_length, "--num-samples", benchmark.ordered_samples]
    words += ["--plus-one"] * benchmark.labels_last_token + ["--shuffle-documents"] * benchmark.shuffle_documents
    words += ["--seed", seed, "--first", first, "--count", count, "--documents", "--output", "samples.npy"]
    return shlex.join(str(word) for word in words)


def describe_state(state: StateSoundness) -> str:
    """Describe in one line which tensors of the state are damaged, on which ranks; or say that the state is sound."""
    if not state.tensors:
        return "weights and moments are finite and of normal size"
    worst = [one for one in state.tensors if one.nonfinite] or list(state.tensors)
    named = ", ".join(
        f"{one.name} on rank {one.rank} ({one.host}): "
        + (
            f"{one.nonfinite} values not finite"
            if one.nonfinite
            else f"a value of {one.largest:.1e}, as a flipped bit makes"
        )
        for one in worst[:MOST_IN_A_LINE]
    )
    return f"weights or moments are damaged: {named}{_more(len(worst))}"


def _ranks(findings: Sequence[RankFindings]) -> str:
    named = ", ".join(f"{one.rank} ({one.host})" for one in findings[:MOST_IN_A_LINE])
    return f"rank{'s' if len(findings) > 1 else ''} {named}{_more(len(findings))}"


def _parameters(holders: Sequence[RankFindings]) -> str:
    names = list(dict.fromkeys(part.parameter for one in holders for part in one.parts))
    number = max(one.num_parts for one in holders)
    of = max(one.num_parameters for one in holders)
    return f"{', '.join(names[:MOST_IN_A_LINE])}{_more(len(names))} ({number} of {of} parameters)"


def _micro_batches(computed: Sequence[RankFindings]) -> str:
    named = [
        f"micro-batch {batch.number} of rank {one.rank} ({one.host}), samples {batch.first_sample} to "
        f"{batch.first_sample + batch.count - 1}"
        for one in computed
        for batch in one.micro_batches
    ]
    return f"{', '.join(named[:MOST_IN_A_LINE])}{_more(sum(one.num_micro_batches for one in computed))}"


def _more(number: int) -> str:
    return f" and {number - MOST_IN_A_LINE} more" if number > MOST_IN_A_LINE else ""


def _count(findings: Iterable[RankFindings], field: str) -> int:
    return sum(getattr(part, field) for one in findings for part in one.parts)
