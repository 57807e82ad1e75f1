"""Steps without finite gradients in plain words: one such step, and a wall of them."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmark.config.run_config import RunConfig
from benchmark.training.guards.nonfinite_step import NonFiniteStep, RankFindings
from benchmark.training.guards.state_soundness import StateSoundness

MOST_IN_A_LINE = 3
"""Ranks, parameters or micro-batches that a line names; the event has more."""


def describe_step(step: NonFiniteStep) -> str:
    """What was not finite, where, and which samples that leaves: one line."""
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
    """First sample and number of samples that hold all those whose loss was not finite; else the whole step's."""
    found = [batch for one in step.ranks for batch in one.micro_batches]
    complete = all(one.num_micro_batches == len(one.micro_batches) for one in step.ranks)
    if not found or not complete:
        return step.first_sample, step.num_samples
    first = min(batch.first_sample for batch in found)
    return first, max(batch.first_sample + batch.count for batch in found) - first


def samples_command(config: RunConfig, seed: int, first: int, count: int) -> str:
    """The command that writes these samples and says which documents they are made of."""
    words: list[object] = ["python", "-m", "data_prep", "samples", "--data-path", *config.train_data_path]
    words += ["--seq-length", config.benchmark.model.seq_length, "--num-samples", config.benchmark.train_samples]
    words += ["--seed", seed, "--first", first, "--count", count, "--documents", "--output", "samples.npy"]
    return shlex.join(str(word) for word in words)


@dataclass(frozen=True)
class SkippedStep:
    """One of the steps that were skipped in a row."""

    iteration: int
    found: NonFiniteStep


def diagnose(skipped: Sequence[SkippedStep], in_a_row: int, last: int, state: StateSoundness, rate: float) -> str:
    """What a wall of skipped steps most likely is, and what to do next.

    ``skipped``: those since the last start; ``in_a_row``: all; ``last``: iteration of the last, ``rate`` its learning
    rate.
    """
    first = last - in_a_row + 1
    lines = [f"{_steps(in_a_row)} without finite gradients, from step {first} on: giving up"]
    lines.append(describe_state(state))
    finite = sum(one.found.losses_finite for one in skipped)
    lines.append(f"the losses were finite in {finite} of {len(skipped)} of these steps")
    cause, mend = _cause(skipped, state, rate)
    return f"{'; '.join([*lines, cause])}. {mend}"


def _steps(in_a_row: int) -> str:
    return "a step" if in_a_row == 1 else f"{in_a_row} steps in a row"


def _cause(skipped: Sequence[SkippedStep], state: StateSoundness, rate: float) -> tuple[str, str]:
    """Most likely cause, and what to do next."""
    if state.tensors:
        hosts = ", ".join(sorted({one.host for one in state.tensors}))
        return (
            "so it is the state, not the data, that every step breaks on",
            f"Nothing of it is saved: go on from the last checkpoint, without {hosts} if it comes back",
        )
    seen = [one.found for one in skipped]
    if len(seen) > 1 and seen[0].data_parallel > 1:
        alone = _only_reader(seen)
        if alone:
            return (
                f"each time the losses of data-parallel rank {alone[0].data_rank} alone were not finite, on other "
                f"samples each time: suspect a device of {_ranks(alone)}",
                _without(alone),
            )
        holder = _only_holder(seen)
        if holder is not None:
            return (
                f"each time {_ranks([holder])} alone held a part that was not finite, of {_same_parameters(seen)}: "
                "suspect that device, or the layers whose parts it holds",
                _without([holder]),
            )
    return (
        "ranks and parameters are many or others each time, so no device stands out: suspect the data or the learning "
        f"rate ({rate:.3e})",
        "Look at the samples, with the commands in events.jsonl; then delete summary.json and continue from an older "
        "checkpoint (--resume-from STEP), or begin again with a lower --lr (another --run-dir)",
    )


def _without(suspects: Sequence[RankFindings]) -> str:
    hosts = ", ".join(sorted({one.host for one in suspects}))
    return (
        f"Take {hosts} out (python -m benchmark preflight checks it), delete summary.json and continue from the newest "
        "checkpoint"
    )


def _only_reader(steps: Sequence[NonFiniteStep]) -> list[RankFindings]:
    """The ranks of the one data-parallel rank whose losses were not finite in all steps, as the last step has them."""
    computed = [[one for one in step.ranks if one.num_micro_batches] for step in steps]
    readers = [{one.data_rank for one in some} for some in computed]
    return computed[-1] if len(readers[0]) == 1 and all(some == readers[0] for some in readers) else []


def _only_holder(steps: Sequence[NonFiniteStep]) -> RankFindings | None:
    """The one rank that held parts that were not finite, in all steps."""
    holders = [[one for one in step.ranks if one.num_parts] for step in steps]
    ranks = {tuple(one.rank for one in some) for some in holders}
    return holders[-1][0] if len(ranks) == 1 and len(holders[-1]) == 1 else None


def _same_parameters(steps: Sequence[NonFiniteStep]) -> str:
    named = [{part.parameter for one in step.ranks for part in one.parts} for step in steps]
    same = sorted(set.intersection(*named))
    return f"the same parameters ({', '.join(same[:MOST_IN_A_LINE])}{_more(len(same))})" if same else "other parameters"


def describe_state(state: StateSoundness) -> str:
    """One line for people: which tensors of the state are damaged, on which ranks; or that it is sound."""
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
