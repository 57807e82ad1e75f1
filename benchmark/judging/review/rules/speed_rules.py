"""Check the speed: more than the devices can do is an error; blocks, steps and statistics that contradict each other
are questions. A run is cut at its evaluations and judged by its usual block, so that a restart or a stall affects only
the block in which it happened.

Sources: docs/facts/mlperf_review.md 6.3, 6.9, 6.11, 7.2, 7.3, 7.8; docs/facts/peers.md 1.0 for the peaks.
"""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmark.config.accelerators import ACCELERATORS, accelerator_named
from benchmark.config.number_formats import LOGGED_BITS
from benchmark.judging.results.run_summary import (
    MEAN_STEP_TIMING,
    STEP_TIMING,
    THROUGHPUT,
    VALIDATION_TIMING,
    LoggedEvaluation,
    TimedBlock,
    Tracked,
)
from benchmark.judging.results.score import LINEAR_KEY, Score, score
from benchmark.judging.results.subjects import ResultSet
from benchmark.judging.review.findings import Deviation, Run, at
from benchmark.judging.review.rules.clock_rules import steady_blocks

Interval = TypeVar("Interval", TimedBlock, LoggedEvaluation)
FEWEST = 5
"""Least number of blocks that have a usual length."""
PRECISION_KEYS = (LINEAR_KEY, "lowest_numerical_precision_in_attn")
FASTEST_SYSTEM = 4e19
"""Most FLOP/s of a system without a description; the fastest published one, 5,120 GB200, has 1.2e19."""
FAST_BLOCK = 0.75
"""Least share of the usual block's time; published blocks take at least 0.83 of the median."""
STEPS_IN_BLOCK = (1.02, 3.0)
"""Seconds of a block's steps over those of the block: above the first number they contradict each other, above the
second the steps have another unit. Published logs of gpt3 have at most 0.92: the block includes the evaluation."""
SAMPLES_IN_BLOCK = (1.02, 1.9)
"""Seconds of a block by its throughput over those by the clock: above the first number they contradict each other,
above the second the throughput is that of some devices. 122 published logs have 0.94 to 0.99."""
STEPS_IN_EVALUATION = (1.1, 3.0)
"""Seconds of an evaluation by its median step over those by the clock; 471 published logs have at most 1.05."""
NO_TIME = 0.2
"""Share of the median step below which a step took no time; published steps take at least 0.89."""
SHORTEST_BLOCK_S = 1.0
LATE_STOP_MS = 60_000
"""Milliseconds from the last evaluation to run_stop that nobody asks about; published runs have at most 2,400."""
SLOW_BLOCK = 2.0
"""Time over the usual block's from which a block is slow; published blocks stay below 1.9."""


def usual_block(run: Run) -> TimedBlock | None:
    """Return the block a quarter from the fastest, which stays usual even if half of the blocks were disturbed; None
    with few blocks."""
    blocks = sorted((block for block in steady_blocks(run) if block.seconds > 0), key=lambda block: block.seconds)
    return blocks[len(blocks) // 4] if len(blocks) >= FEWEST else None


def usual_tokens_per_s(run: Run) -> float | None:
    """Return the tokens per second of the usual block; with few blocks, of the whole run."""
    block = usual_block(run)
    return run.tokens_per_s if block is None else block.tokens / block.seconds


def peak(results: ResultSet) -> Iterator[Deviation]:
    """Check blocks against the peak of the described devices, in the fastest format that they can train in. A peak
    without a source gives questions; devices with unknown peak are held only to very wide limits."""
    scored = score(results)
    if results.system is not None and scored.accelerators and scored.accelerator and not scored.peak_tflops:
        words = f"accelerator_model_name {scored.accelerator!r:.60}, whose peak is not known here"
        location = results.system.path, results.system.line("accelerator_model_name")
        yield Deviation(*location, words, "one of benchmark/config/accelerators.py", "unknown accelerator")
    if not results.judged.official:
        return
    speeds = [*_odd_speeds(results, scored)]
    yield from speeds
    if all(deviation.case in ("slow", "disclosed") for deviation in speeds):
        yield from _score_faster_than_peak(results, scored)


def _odd_speeds(results: ResultSet, scored: Score) -> Iterator[Deviation]:
    """Check the usual blocks of each run, and its fastest."""
    model = accelerator_named(scored.accelerator or "")
    for run in results.runs:
        usual, stop = usual_tokens_per_s(run), run.log.first("run_stop")
        if usual is None:
            continue
        if not scored.accelerators or not scored.peak_tflops or model is None:
            if (speed := usual * results.judged.flops_per_token) > FASTEST_SYSTEM:
                expected = f"at most {FASTEST_SYSTEM:.1e}; the fastest published system has 1.2e19"
                words = f"{speed:.1e} FLOP/s of a system that is not known here"
                yield at(run, stop, words, expected, "unknown system")
            continue
        limits, hardware = results.judged.limits, ACCELERATORS[model]
        bits, disclosed, case = limits.narrowest_bits, disclosed_bits(run), "" if hardware.sourced else "unsourced peak"
        narrow = hardware.fastest_tflops(bits) / hardware.peak_tflops
        most = scored.accelerators * hardware.peak_tflops * 1e12 / results.judged.flops_per_token
        of = f"of the BF16 peak of {scored.accelerators:,} devices"
        expected = f"at most {narrow:.0%}: the peak of {bits}-bit numbers, the fastest they can train in"
        over = [block for block in steady_blocks(run) if block.tokens > narrow * most * max(block.seconds, 1e-3)]
        if usual > narrow * most:
            yield at(run, stop, f"{usual / most:.0%} {of}", expected, case)
        elif over and not over[0].restarted:
            share = over[0].tokens / max(over[0].seconds, 1e-3) / most
            yield at(run, over[0], f"a block at {share:.0%} {of}", expected, case)
        elif disclosed > bits and usual > hardware.fastest_tflops(disclosed) / hardware.peak_tflops * most:
            expected = f"at most the peak of {disclosed}-bit numbers, the narrowest that it discloses"
            yield at(run, run.log.first(PRECISION_KEYS[0]), f"{usual / most:.0%} {of}", expected, "disclosed")
        elif usual < limits.lowest_mfu * most:
            published = f"published results have {100 * limits.published_mfu:.0f} % and more"
            expected = f"at least {limits.lowest_mfu:.0%}; {published}"
            yield at(run, stop, f"{usual / most:.1%} {of}", expected, "slow")


def _score_faster_than_peak(results: ResultSet, scored: Score) -> Iterator[Deviation]:
    """Check the score itself: clocks that were set back in several runs make it shorter than the blocks are."""
    minutes, stop = scored.measured_minutes, results.runs[0].log.first("run_stop") if results.runs else None
    if minutes is None:
        return
    model, most = accelerator_named(scored.accelerator or ""), FASTEST_SYSTEM
    if model is not None and scored.accelerators:
        most = scored.accelerators * ACCELERATORS[model].fastest_tflops(results.judged.limits.narrowest_bits) * 1e12
    flops = statistics.median(run.trained_tokens or 0 for run in results.runs) * results.judged.flops_per_token
    if flops > most * 60 * minutes:
        case = "unsourced peak" if model is not None and not ACCELERATORS[model].sourced else ""
        observed = f"runs of {minutes:,.2f} minutes in the mean"
        yield at(results.runs[0], stop, observed, f"at least {flops / most / 60:,.2f}, at the devices' peak", case)


def disclosed_bits(run: Run) -> int:
    """Return the bits of the narrowest format that the log discloses for products; 0 without one."""
    words = [run.log.text(key) for key in PRECISION_KEYS]
    return min((LOGGED_BITS.get(word or "", 0) for word in words), default=0)


def fast_block(run: Run) -> Iterator[Deviation]:
    """Check for a block so fast that something was left out of it, or cut out of the log."""
    usual = usual_block(run)
    seconds = 0 if usual is None else usual.seconds
    fast = [block for block in steady_blocks(run) if block.seconds < FAST_BLOCK * seconds]
    if fast and seconds >= SHORTEST_BLOCK_S:
        more = "" if len(fast) == 1 else f" and {len(fast) - 1} more"
        observed = f"{fast[0].seconds:,.1f} s since the evaluation before{more}"
        yield at(run, fast[0], observed, f"about {seconds:,.1f} s, as the other blocks")


def steps_and_blocks(run: Run) -> Iterator[Deviation]:
    """Check statistics of steps, if a log has them: each step takes time, none is left out, and they fit into blocks
    and evaluations. Of several contradictions with the clock the first is yielded, since a scaled clock makes all."""
    size, length = run.global_batch_size, run.sequence_length
    if not size or not length:
        return
    timed = [block for block in steady_blocks(run) if block.steps]
    steps = _single_steps(run, timed, size * length) if len(timed) >= FEWEST else _mean_steps(run, size * length)
    yield from [*steps] or itertools.islice(itertools.chain(_throughput(run, length), _validation_steps(run)), 1)


def _single_steps(run: Run, timed: Sequence[TimedBlock], tokens_per_step: float) -> Iterator[Deviation]:
    logged = run.tracked(STEP_TIMING)
    usual = statistics.median(step.value for step in logged)
    count = statistics.mode(len(block.steps) for block in timed)
    idle = next((step for step in logged[2:] if step.value < NO_TIME * usual), None)
    if idle is not None:
        observed = f"a step of {idle.value:,.3f} s"
        yield at(run, idle, observed, f"about {usual:,.3f} s, as the other steps")
    few = next((block for block in timed if len(block.steps) < count and not block.restarted), None)
    if few is not None:
        observed = f"times of {len(few.steps)} steps before this evaluation"
        yield at(run, few, observed, f"{count}, as before the others")
    for block in timed:
        seconds = statistics.fmean(block.steps) * block.tokens / tokens_per_step
        low, high = (limit * block.seconds for limit in STEPS_IN_BLOCK)
        if low < seconds < high:
            observed = f"{block.seconds:,.1f} s since the evaluation before, {seconds:,.1f} s of steps by their times"
            yield at(run, block, observed, "a block a little longer than its steps")
            return


def _mean_steps(run: Run, tokens_per_step: float) -> Iterator[Deviation]:
    """Check that blocks are as long as mean times of steps say, in logs that have no single ones. Over 4,752 published
    blocks of Llama 3.1 the median mean, times the number of steps, is 0.60 to 1.003 of the block."""
    means, times = run.tracked(MEAN_STEP_TIMING), list[StatedTime]()
    for block, inside in _statistics_of(steady_blocks(run), means):
        if not block.restarted:
            times.append(StatedTime(block, block.seconds, statistics.median(inside) * block.tokens / tokens_per_step))
    yield from _contradiction(run, times, STEPS_IN_BLOCK, "a block", "by the mean times of its steps")


def _throughput(run: Run, sequence_length: float) -> Iterator[Deviation]:
    """Check that blocks are as long as their throughput says."""
    numbers, times = run.tracked(THROUGHPUT), list[StatedTime]()
    for block, inside in _statistics_of(steady_blocks(run), numbers):
        if not block.restarted and statistics.median(inside) > 0:
            seconds = block.tokens / sequence_length / statistics.median(inside)
            times.append(StatedTime(block, block.seconds, seconds))
    yield from _contradiction(run, times, SAMPLES_IN_BLOCK, "a block", "by its throughput")


def _validation_steps(run: Run) -> Iterator[Deviation]:
    """Check that evaluations are as long as their steps."""
    times = [
        StatedTime(evaluation, evaluation.seconds, statistics.median(inside) * len(inside))
        for evaluation, inside in _statistics_of(run.evaluations, run.tracked(VALIDATION_TIMING))
        if evaluation.seconds is not None
    ]
    yield from _contradiction(run, times, STEPS_IN_EVALUATION, "an evaluation", "by the times of its steps")


@dataclass(frozen=True)
class StatedTime:
    """A block or an evaluation, with its seconds by the clock and by the log's statistics."""

    interval: TimedBlock | LoggedEvaluation
    seconds: float
    stated_seconds: float

    @property
    def ratio(self) -> float:
        return self.stated_seconds / self.seconds


def _statistics_of(intervals: Sequence[Interval], numbers: Sequence[Tracked]) -> Iterator[tuple[Interval, list[float]]]:
    """Yield each block or evaluation before whose line, and after that of the one before, statistics are logged."""
    line = 0
    for interval in intervals:
        inside = [number.value for number in numbers if line < number.line <= interval.line]
        line = interval.line
        if inside:
            yield interval, inside


def _contradiction(
    run: Run, times: Sequence[StatedTime], limits: tuple[float, float], subject: str, source: str
) -> Iterator[Deviation]:
    """Yield one deviation if the median of stated over measured times lies between the limits: a scaled clock changes
    all of them, a stall or a compilation only some."""
    timed = sorted((time for time in times if time.seconds > 0), key=lambda time: time.ratio)
    middle = timed[len(timed) // 2] if len(timed) >= FEWEST else None
    if middle is not None and limits[0] < middle.ratio < limits[1]:
        observed = f"{subject} of {middle.seconds:,.1f} s, which takes {middle.stated_seconds:,.1f} s {source}"
        yield at(run, middle.interval, observed, f"{subject} at least as long as its steps")


def hasty_evaluations(run: Run) -> Iterator[Deviation]:
    """Check that evaluations take the time and the steps of the whole validation subset."""
    judged = run.rules
    usual, size = usual_tokens_per_s(run), run.global_batch_size
    timed = [evaluation for evaluation in run.evaluations if evaluation.seconds is not None and evaluation.seconds >= 0]
    if not judged.official or not timed or not usual or not size:
        return
    seconds = statistics.median(evaluation.seconds or 0 for evaluation in timed)
    ratio = judged.evaluation.validation_sequences * judged.sequence_length / max(seconds, 1e-3) / usual
    if ratio > judged.limits.hasty_evaluation:
        observed = f"evaluations of {seconds:,.3f} s: {ratio:,.1f} times the tokens per second of training"
        yield at(run, timed[0], observed, "about 3 times: a forward pass alone")
    steps = run.tracked(VALIDATION_TIMING)
    needed_steps = judged.steps(judged.evaluation.validation_sequences, size)
    if len(run.evaluations) < len(steps) < needed_steps * len(run.evaluations):  # one each is their mean
        observed = f"{len(steps)} validation steps in {len(run.evaluations)} evaluations"
        words = f"{needed_steps} each: {judged.evaluation.validation_sequences:,} sequences, {size:g} at a time"
        yield at(run, steps[0], observed, words)


def lost_time(results: ResultSet) -> Iterator[Deviation]:
    """Ask once for all runs about restarts, stalls and repeated evaluations; their time was on the clock, so that the
    submitter bore the cost."""
    words, lines = [], []
    for run in results.runs:
        usual = usual_block(run)
        seconds = 0.0 if usual is None else usual.seconds
        most = max(SLOW_BLOCK * seconds, seconds + SHORTEST_BLOCK_S)
        slow = [block for block in run.blocks if usual and (block.restarted or block.seconds > most)]
        losses = [f"{len(run.restarts)} restart{'s' * (len(run.restarts) > 1)} logged"] if run.restarts else []
        lost = sum(block.seconds - seconds for block in slow)
        if lost >= SHORTEST_BLOCK_S:
            losses.append(f"{len(slow)} block{'s' * (len(slow) > 1)} {lost:,.0f} s longer than usual")
        elif slow and not losses:
            losses.append("evaluations made again")
        stop, ended = run.log.first("run_stop"), run.evaluations[-1].time_ms if run.evaluations else 0
        if usual and stop and run.converged and stop.time_ms - ended > max(1000 * seconds, LATE_STOP_MS):
            losses.append(f"run_stop {(stop.time_ms - ended) / 1000:,.0f} s after the last evaluation")
        if losses:
            words.append(f"{run.log.path.name}: {', '.join(losses)}")
            line_numbers = (record.line for record in (*run.restarts, *slow, stop) if record is not None)
            lines.append((run.log.path, next(line_numbers)))
    if lines:
        yield Deviation(*lines[0], "; ".join(words), "blocks of equal length, in one piece")
