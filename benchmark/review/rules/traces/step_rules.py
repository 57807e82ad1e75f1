"""What the steps of a run say: how many, their tokens, times and losses, and the steps of its evaluations.

Published logs have every step once, at equal distances in tokens; no two of their steps take the same time, and the
times are never independent of each other (docs/facts/mlperf_review.md 6.3, 6.11).
"""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmark.results.judged import GPT3
from benchmark.results.result_log import as_number
from benchmark.results.run_summary import LOSS, VALIDATION_TIMING, Tracked, tracked
from benchmark.review.findings import Deviation, Run, at
from benchmark.review.rules.copy_rules import OWN_RUN
from benchmark.review.rules.set_rules import Runs

Array = np.ndarray[Any, np.dtype[np.float64]]
FEWEST_STEPS = 60
MOST_STEPS = 20_000
FEW_TIMES = 3
"""Different times of all steps together; published: at least 97 of 100 differ."""
LONGEST_PERIOD = 64
REPEATED = 0.9
"""Share of steps that take as long, to the last digit, as the one so many steps before."""
SHARED = 0.3
"""Of step times, rounded to DECIMALS, that two runs have in common; published: at most 0.055."""
DECIMALS = 6
LONGEST = 8
FACTOR = 0.3
"""By which step times of another run may be longer or shorter than it, so that they are looked for."""
LAGS = 25
INDEPENDENT = 45.0
"""Ljung and Box's sum over so many lags of the ranks of step times. Drawn numbers: below 49 in 99 of 100 cases;
published runs whose times are also as near to a normal distribution as below: at least 65."""
NORMAL_TAILS, NORMAL_WIDTH = 1.5, 1.7
"""Excess kurtosis, and standard deviation by median deviation (1.48 for a normal distribution)."""
EVEN_TAILS = -1.0
"""Excess kurtosis of numbers drawn evenly from a range: -1.2; published: at least -0.6."""
LOSS_DISTANCE = 0.05
"""Median of training losses less the evaluations at the same tokens; published: within 0.002."""
EQUAL_LOSSES = 0.2
"""Share of losses that two runs have in common; published: 0.005."""
SAME_NOISE = 0.6
"""Correlation of two runs' differences from loss to loss; published: at most 0.22."""
VALIDATION_SHARE = (0.5, 1.02)
"""Logged validation steps by the time from eval_start to eval_stop; published: 0.79 to 0.997."""


def steps_missing(run: Run) -> Iterator[Deviation]:
    """Steps, or every n-th of them, follow each other at one distance in tokens, none left out and none twice."""
    steps = [step for step in run.step_seconds if step.tokens is not None]
    if len(steps) < FEWEST_STEPS or run.restarts:
        return
    gaps = [(after.tokens or 0) - (before.tokens or 0) for before, after in itertools.pairwise(steps)]
    usual = statistics.mode(gaps)
    other = [(step, gap) for step, gap in zip(steps[1:], gaps, strict=True) if gap != usual]
    if other:
        found = f"{len(other)} of {len(gaps)} steps not {usual:,.0f} tokens after the one before, as {other[0][1]:,.0f}"
        mend = "log every step once, or every n-th, with the tokens since the checkpoint"
        yield Deviation(run.log.path, other[0][0].line, found, "steps at one distance", mend)


def step_size(run: Run) -> Iterator[Deviation]:
    size, length = run.global_batch_size, run.sequence_length
    for step in run.step_seconds if size and length else ():
        if step.tokens is not None and step.tokens % ((size or 1) * (length or 1)):
            found, due = f"a step at {step.tokens:,.0f} tokens", f"a multiple of {size:g} x {length:g}, the batch size"
            yield Deviation(run.log.path, step.line, found, due, "log the tokens of whole batches")
            return


def few_step_times(run: Run) -> Iterator[Deviation]:
    times, line = _times(run)
    if len(times) < FEWEST_STEPS:
        return
    different = len(set(times))
    if different <= FEW_TIMES:
        found = f"{len(times)} steps with {different} different times"
        yield Deviation(run.log.path, line, found, "times as they were measured", "log what the clock says")
        return
    for period in range(1, LONGEST_PERIOD + 1):
        same = sum(one == other for one, other in zip(times, times[period:], strict=False))
        if same > REPEATED * (len(times) - period) > FEWEST_STEPS // 2:
            found = f"step times that repeat every {period} steps, to the last digit"
            yield Deviation(run.log.path, line, found, "times as they were measured", "log what the clock says")
            return


def drawn_step_times(run: Run) -> Iterator[Deviation]:
    """As a generator of random numbers makes them: each independent of the others, evenly or normally distributed."""
    times, line = _times(run)
    numbers = np.array(times[2:])
    if len(numbers) < 2 * FEWEST_STEPS or len(set(times)) <= FEW_TIMES or not (run.judged or GPT3).official:
        return
    centred = numbers - numbers.mean()
    tails = float((centred**4).mean() / (centred**2).mean() ** 2 - 3)
    width = float(numbers.std() / max(np.median(np.abs(numbers - np.median(numbers))), 1e-12))
    normal = abs(tails) < NORMAL_TAILS and width < NORMAL_WIDTH and _dependence(numbers) < INDEPENDENT
    if normal or tails < EVEN_TAILS:
        found = (
            f"{len(numbers)} step times as if drawn from {'a range' if tails < EVEN_TAILS else 'a normal distribution'}"
        )
        due = "times of a machine: some steps far off, and neighbours alike"
        yield Deviation(run.log.path, line, found, due, "show the job's own log of its steps")


def _dependence(numbers: Array) -> float:
    ranks = np.argsort(np.argsort(numbers)).astype(np.float64)
    ranks -= ranks.mean()
    count, whole = len(ranks), float(ranks @ ranks)
    return sum(
        count * (count + 2) * (float(ranks[:-lag] @ ranks[lag:]) / whole) ** 2 / (count - lag)
        for lag in range(1, LAGS + 1)
    )


def shared_step_times(runs: Runs) -> Iterator[Deviation]:
    """Of two runs, in whatever order."""
    for run, other in _pairs(runs):
        mine, theirs = ({round(step.value, DECIMALS) for step in one.step_seconds[:MOST_STEPS]} for one in (run, other))
        if min(len(mine), len(theirs)) >= FEWEST_STEPS and len(mine & theirs) > SHARED * min(len(mine), len(theirs)):
            # to the last digit of the log: times rounded to milliseconds are shared by honest runs
            found = f"{len(mine & theirs)} of its {len(mine)} different step times, as {other.log.path.name}"
            if not _coarse(mine) and not _coarse(theirs):
                yield Deviation(run.log.path, run.step_seconds[0].line, found, OWN_RUN, "submit three different runs")
                continue
        common = _but_for_a_factor(*({step.value for step in one.step_seconds[:MOST_STEPS]} for one in (run, other)))
        if min(len(mine), len(theirs)) >= FEWEST_STEPS and common > SHARED * min(len(mine), len(theirs)):
            found = f"{common} of its {len(mine)} step times, as {other.log.path.name}, but for a factor"
            yield Deviation(run.log.path, run.step_seconds[0].line, found, OWN_RUN, "submit three different runs")


def _but_for_a_factor(mine: set[float], theirs: set[float]) -> int:
    """Most times in common when all of one run are multiplied by one number: that of two of their longest ones."""
    if _coarse(mine) or _coarse(theirs):
        return 0
    longest = [sorted(times, reverse=True)[:LONGEST] for times in (mine, theirs)]
    due = {round(time, DECIMALS + 2) for time in mine}
    return max(
        (
            len({round(time * one / other, DECIMALS + 2) for time in theirs} & due)
            for one in longest[0]
            for other in longest[1]
            if other > 0 and abs(one / other - 1) < FACTOR
        ),
        default=0,
    )


def _coarse(times: set[float]) -> bool:
    return all(round(time, 4) == time for time in times)


def shared_losses(runs: Runs) -> Iterator[Deviation]:
    """Training losses of two runs: the same samples in the same order, or one log for two runs."""
    for run, other in _pairs(runs):
        count = min(len(run.losses), len(other.losses), MOST_STEPS)
        if count < FEWEST_STEPS:
            continue
        mine, theirs = (np.array([loss.value for loss in one.losses[:count]]) for one in (run, other))
        equal = float((np.round(mine, 5) == np.round(theirs, 5)).mean())
        with np.errstate(all="ignore"):
            alike = float(np.nan_to_num(np.corrcoef(np.diff(mine), np.diff(theirs))[0, 1]))
        if equal > EQUAL_LOSSES or alike > SAME_NOISE:
            found = f"training losses of {other.log.path.name}: {equal:.0%} equal, {alike:.2f} of the noise in common"
            yield Deviation(run.log.path, run.losses[0].line, found, OWN_RUN, "submit three different runs")


def losses_off(run: Run) -> Iterator[Deviation]:
    """Training losses far from the evaluations beside them."""
    known = [(one.tokens, one.log_perplexity) for one in run.evaluations if one.tokens and one.log_perplexity]
    losses = [one for one in run.losses[:MOST_STEPS] if one.tokens is not None]
    if len(known) < 2 or len(losses) < FEWEST_STEPS or not (run.judged or GPT3).official:
        return
    usual = np.interp([one.tokens or 0 for one in losses], [one[0] for one in known], [one[1] for one in known])
    distance = float(np.median(np.array([one.value for one in losses]) - usual))
    if abs(distance) > LOSS_DISTANCE:
        found = f"training losses {distance:+.3f} from the evaluations beside them"
        mend = "say what loss was logged, and how it is averaged"
        yield Deviation(run.log.path, losses[0].line, found, f"within {LOSS_DISTANCE:g}", mend)


def losses_no_numbers(run: Run) -> Iterator[Deviation]:
    for event in run.log.all("tracked_stats"):
        values = event.value if isinstance(event.value, dict) else {}
        for name in LOSS:
            if name in values and as_number(values[name]) is None:
                mend = "say how training went on from there"
                yield at(run, event, f"{name} {values[name]!r:.40}", "a finite number", mend)
                return


def validation_steps(run: Run) -> Iterator[Deviation]:
    """The steps of evaluations fill the time that evaluations take."""
    seconds, steps = run.evaluation_s, tracked(run.log, VALIDATION_TIMING)
    timed: Sequence[Tracked] = tuple(steps)
    if not seconds or len(timed) < len(run.evaluations):
        return
    share = sum(step.value for step in timed) / seconds
    if not VALIDATION_SHARE[0] <= share <= VALIDATION_SHARE[1]:
        found = f"validation steps of {share:.2f} of the time of the evaluations that they are in"
        due = f"{VALIDATION_SHARE[0]:g} to 1"
        mend = "evaluate the whole subset, and log its steps and its stamps with one clock"
        yield Deviation(run.log.path, timed[0].line, found, due, mend)


def _times(run: Run) -> tuple[list[float], int | None]:
    steps = run.step_seconds[:MOST_STEPS]
    return [step.value for step in steps], steps[0].line if steps else None


def _pairs(runs: Runs) -> Iterator[tuple[Run, Run]]:
    for place, run in enumerate(runs):
        for other in runs[:place]:
            yield run, other
