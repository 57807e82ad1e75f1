"""Three clocks of a run agree: time stamps, logged step times and throughput, and tokens; and no device is too fast.

Sources: docs/facts/mlperf_review.md 6.3, 6.6, 6.9, 7.2, 7.3; docs/facts/peers.md 1.0 for the peaks.
"""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmark.config.accelerators import accelerator_named
from benchmark.results.judged import GPT3
from benchmark.results.score import score
from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.review.findings import Deviation, Run, at
from model.flops import train_flops_per_token

STEPS_IN_BLOCK = 0.98
"""Least time of a block by that of its steps. Published: 1.09 to 1.25, since the evaluation comes on top."""
MOST_BESIDE_STEPS = 2.0
FAST_BLOCK = (0.03, 10.0)
"""A block is too fast by this share of the median, and by so many of the blocks' own median deviations. Published: one
system is faster by 0.17, which is 6.4 of its deviations; all others by at most 0.015."""
FAST_EVALUATION = (0.1, 10.0)
"""The same of evaluations, by eval_start and eval_stop; published: 0.15 and 0.034."""
EVALUATED_TOKENS = 11_590_004
EVALUATION_SPEED = (4.5, 9.0)
"""Tokens per second of evaluations by those of the run: a question, an error. A forward pass alone is a third of the
work of a step; published: 1.9 to 3.0."""
IMPOSSIBLE = 0.5
"""Share of the median below which work was left out; published: at least 0.83."""
FEWEST = 5
"""Blocks or evaluations to compare."""
THROUGHPUT_TOLERANCE = 0.05
"""Published logs are within 0.3 % of tokens over run time."""
BLOCK_THROUGHPUT = (0.9, 1.6)
"""Where it is logged often, its median by tokens over run time: evaluations may be left out, at most 15 % of a run."""
OTHER_UNIT = 0.2
"""Of the run's tokens per second, below which a logged throughput counts something else: a device's, or sequences."""
EIGHT_BIT = 2.0
"""Every accelerator of ours multiplies 8-bit numbers at twice its BF16 peak, the fastest it can train in: FP8 or int8.

Integers of 4 bits are in the list of formats, too, but nothing has been trained in them.
"""
LOWEST_MFU = 0.15
"""Published: at least 0.42."""
FASTEST_SYSTEM = 2e7
"""Tokens per second of a whole system that call for its description; published: at most 6.0e6, on 11,616 H100."""
SYSTEMS_APART = 2.5
"""Tokens per second and device of two systems of the same devices; in a published package at most 1.8."""
LONG_AFTER_MS = 60_000
SHORTEST_RUN_MS = 10_000
"""Below which clocks in milliseconds are not compared."""


@dataclass(frozen=True)
class TimedBlock:
    """From run_start or an evaluation to the next evaluation."""

    line: int
    """Of the evaluation it ends with."""
    start_ms: int
    stop_ms: int
    tokens: float

    @property
    def length_ms(self) -> int:
        return self.stop_ms - self.start_ms


def blocks(run: Run) -> list[TimedBlock]:
    """All of a run, the first included; none where tokens or times are missing."""
    if run.run_start_ms is None:
        return []
    found, time_ms, tokens = [], run.run_start_ms, 0.0
    for one in run.evaluations:
        now = tokens if one.tokens is None else one.tokens
        found.append(TimedBlock(one.line, time_ms, one.time_ms, now - tokens))
        time_ms, tokens = one.time_ms, now
    return found


def steps_fit(run: Run) -> Iterator[Deviation]:
    """The steps of a block take no longer than the block."""
    yield from _steps_and_blocks(run, STEPS_IN_BLOCK, longer=False)


def steps_fill(run: Run) -> Iterator[Deviation]:
    """And not much less: something else took the time, or the steps are those of another run."""
    yield from _steps_and_blocks(run, MOST_BESIDE_STEPS, longer=True)


def _steps_and_blocks(run: Run, limit: float, longer: bool) -> Iterator[Deviation]:
    size, length = run.global_batch_size, run.sequence_length
    if size is None or length is None or not run.step_seconds:
        return
    steps = sorted(run.step_seconds, key=lambda step: step.time_ms)
    place = 0
    for block in blocks(run):
        inside = []
        while place < len(steps) and steps[place].time_ms <= block.stop_ms:
            inside.append(steps[place].value)
            place += 1
        if not inside or block.tokens <= 0 or (longer and _restarted(run, block)):
            continue
        seconds = statistics.fmean(inside) * block.tokens / (size * length)
        if block.length_ms / 1000 > seconds * limit if longer else block.length_ms / 1000 < seconds * limit:
            found = (
                f"{block.length_ms / 1000:,.1f} s since the evaluation before, {seconds:,.1f} s of steps by their times"
            )
            mend = "log steps and evaluations with one clock, and cut nothing out of either"
            yield Deviation(run.log.path, block.line, found, "a block a little longer than its steps", mend)
            return


def step_tokens(run: Run) -> Iterator[Deviation]:
    """metadata.step of steps: tokens that grow, up to those of the run."""
    size, judged, before = run.global_batch_size, run.judged or GPT3, 0.0
    unfinished = judged.tokens_per_evaluation(size) if size and run.was_aborted else 0
    trained = None if run.trained_tokens is None else run.trained_tokens + unfinished
    for step in run.step_seconds:
        if step.tokens is None or trained is None:
            continue
        if step.tokens < before and not run.restarts:
            due = f"at least {before:,.0f}, the step's before"
        elif step.tokens > trained:
            due = f"at most {trained:,.0f}, the tokens at the last evaluation"
        else:
            before = step.tokens
            continue
        mend = "log the tokens since the checkpoint with each step, in their order"
        yield Deviation(run.log.path, step.line, f"a step at {step.tokens:,.0f} tokens", due, mend)
        return


def fast_blocks(run: Run) -> Iterator[Deviation]:
    for line, length, median in _fast([(one.line, one.length_ms / 1000) for one in blocks(run)], *FAST_BLOCK):
        found = f"{length:,.3f} s since the evaluation before, {length / median:.3f} of the median"
        mend = "say why this block took less time than the others; cut nothing out of a log"
        yield Deviation(run.log.path, line, found, f"about {median:,.3f} s", mend)


def fast_evaluations(run: Run) -> Iterator[Deviation]:
    timed = [(one.line, one.seconds) for one in run.evaluations if one.seconds is not None]
    for line, length, median in _fast(timed, *FAST_EVALUATION):
        found = f"an evaluation of {length:,.3f} s, {length / median:.3f} of the median"
        mend = "evaluate the whole subset every time, and log eval_start before it"
        yield Deviation(run.log.path, line, found, f"about {median:,.3f} s", mend)


def hasty_evaluations(run: Run) -> Iterator[Deviation]:
    yield from _evaluation_speed(run, EVALUATION_SPEED[0], EVALUATION_SPEED[1])


def impossible_evaluations(run: Run) -> Iterator[Deviation]:
    """The whole validation subset does not go through the model in that time."""
    yield from _evaluation_speed(run, EVALUATION_SPEED[1], float("inf"))


def _evaluation_speed(run: Run, low: float, high: float) -> Iterator[Deviation]:
    timed = [one for one in run.evaluations if one.seconds is not None and one.seconds >= 0]
    if not timed or not run.tokens_per_s or not (run.judged or GPT3).official:
        return
    seconds = statistics.median(one.seconds or 0 for one in timed)
    ratio = EVALUATED_TOKENS / max(seconds, 1e-3) / run.tokens_per_s
    if low < ratio <= high:
        found = f"evaluations of {seconds:,.3f} s: {ratio:,.1f} times the tokens per second of the run"
        mend = "evaluate the whole subset, between eval_start and eval_stop"
        yield Deviation(run.log.path, timed[0].line, found, "about 3 times: a forward pass alone", mend)


def impossible_blocks(run: Run) -> Iterator[Deviation]:
    timed = [(one.line, one.length_ms / 1000) for one in blocks(run)]
    for line, length, median in _fast(timed, 1 - IMPOSSIBLE, 0):
        found = f"{length:,.1f} s since the evaluation before, {length / median:.2f} of the median"
        mend = "train every step between two evaluations, on the running clock"
        yield Deviation(run.log.path, line, found, f"at least {IMPOSSIBLE} of it: the same work", mend)


def _fast(timed: Sequence[tuple[int, float]], share: float, deviations: float) -> Iterator[tuple[int, float, float]]:
    """Line, length and median of what is shorter than the median by both."""
    lengths = [length for _, length in timed]
    median = statistics.median(lengths) if len(lengths) >= FEWEST else 0
    if median <= 0:  # most of them without time at all: then by their mean
        median = statistics.fmean(lengths) if lengths and len(lengths) >= FEWEST else 0
    if median <= 0:
        return
    spread = statistics.median(abs(length - median) for length in lengths)
    for line, length in timed:
        if median - length > max(share * median, deviations * spread):
            yield line, length, median


def stop_on_clock(run: Run) -> Iterator[Deviation]:
    """By any margin: the target is not known to be met before it is evaluated."""
    stop, reached = run.log.first("run_stop"), run.reached
    if stop is not None and reached is not None and stop.time_ms < reached.time_ms:
        found = f"run_stop {(reached.time_ms - stop.time_ms) / 1000:,.3f} s before the evaluation that met the target"
        yield at(run, stop, found, "after it on the clock", "stop the clock when the target is known to be met")


def long_after_stop(run: Run) -> Iterator[Deviation]:
    stop = run.log.first("run_stop")
    for event in run.log.events if stop is not None else ():
        if stop is not None and event.time_ms > stop.time_ms + LONG_AFTER_MS:
            found = f"{event.key} {(event.time_ms - stop.time_ms) / 1000:,.0f} s after run_stop"
            yield at(run, event, found, "the log's end with the run", "say what wrote it so much later")
            return


def throughput(run: Run) -> Iterator[Deviation]:
    yield from _throughput(run, other_unit=False)


def throughput_unit(run: Run) -> Iterator[Deviation]:
    """Far below: sequences per second, or tokens per second of a device."""
    yield from _throughput(run, other_unit=True)


def _throughput(run: Run, other_unit: bool) -> Iterator[Deviation]:
    """Logged tokens per second against tokens over run time; an aborted run has time after its last evaluation."""
    if run.was_aborted or not run.throughput or not run.tokens_per_s or (run.run_ms or 0) < SHORTEST_RUN_MS:
        return
    logged = run.throughput[len(run.throughput) // 2]
    if len(run.throughput) == 1:
        low, high, ratio = 1 - THROUGHPUT_TOLERANCE, 1 + THROUGHPUT_TOLERANCE, logged.value / run.tokens_per_s
    else:
        low, high = BLOCK_THROUGHPUT
        ratio = statistics.median(one.value for one in run.throughput) / run.tokens_per_s
    if not low <= ratio <= high and (0 < ratio < OTHER_UNIT) == other_unit:
        found, due = f"throughput {logged.value:,.0f}", f"about {run.tokens_per_s:,.0f} tokens/s = tokens / run time"
        yield Deviation(run.log.path, logged.line, found, due, "log tokens per second of the whole system")


def above_peak(one: ResultSet) -> Iterator[Deviation]:
    """Faster than the devices of the description can multiply in any format."""
    yield from _shares_of_peak(one, EIGHT_BIT, float("inf"), "the peak of 8-bit numbers, the fastest it can train in")


def above_bf16_peak(one: ResultSet) -> Iterator[Deviation]:
    yield from _shares_of_peak(one, 1.0, EIGHT_BIT, "the peak of BF16: it takes FP8, with a loss of its own")


def far_below_peak(one: ResultSet) -> Iterator[Deviation]:
    for run, count, share in _shares(one):
        if share < LOWEST_MFU and run.restarts == ():
            due = f"at least {LOWEST_MFU:.0%}; published results have 42 % and more"
            yield _at_stop(
                run, f"{share:.1%} of the BF16 peak of {count:,} devices", due, "check the counts of devices"
            )


def unknown_device(one: ResultSet) -> Iterator[Deviation]:
    """An accelerator without a peak in our table, so that nothing above is judged."""
    model = None if one.system is None else one.system.string("accelerator_model_name")
    if one.system is not None and one.system.accelerators and model and accelerator_named(model) is None:
        line, what = one.system.line("accelerator_model_name"), f"accelerator_model_name {model!r:.60}"
        due = "one of benchmark/config/accelerators.py"
        yield Deviation(one.system.path, line, what, due, "say its peak in each format, with the maker's document")


def _shares_of_peak(one: ResultSet, low: float, high: float, due: str) -> Iterator[Deviation]:
    for run, count, share in _shares(one):
        if low < share <= high:
            found = f"{share:.0%} of the BF16 peak of {count:,} devices"
            mend = "correct times, tokens or the number of devices: they do not fit each other"
            yield _at_stop(run, found, f"less than {low * 100:.0f} %, {due}", mend)


def _shares(one: ResultSet) -> Iterator[tuple[Run, int, float]]:
    """Model FLOPs over the run, or over its middle block if that is faster, as a share of the devices' BF16 peak."""
    found = score(one)
    if not found.accelerators or not found.peak_tflops or not one.judged.official:
        return
    flops = train_flops_per_token(one.judged.benchmark.model)
    for run in one.runs:
        speeds = [block.tokens / block.length_ms * 1000 for block in blocks(run) if block.length_ms > 0]
        fastest = max(statistics.median(speeds) if speeds else 0, run.tokens_per_s or 0)
        yield run, found.accelerators, fastest * flops / 1e12 / found.accelerators / found.peak_tflops


def too_fast_for_any(run: Run) -> Iterator[Deviation]:
    """Where nothing says how many devices there were."""
    if run.tokens_per_s is not None and run.tokens_per_s > FASTEST_SYSTEM and (run.judged or GPT3).official:
        due = f"at most {FASTEST_SYSTEM:,.0f}; the fastest published system has 6.0e6"
        yield _at_stop(run, f"{run.tokens_per_s:,.0f} tokens/s", due, "say on which system it was, and how")


def systems_apart(package: SubmissionPackage) -> Iterator[Deviation]:
    """Two systems of the same devices of which one is far faster per device: folders or counts are exchanged."""
    scores = [(one, score(one)) for one in package.sets]
    timed = [(one, found, found.tokens_per_s_per_accelerator or 0) for one, found in scores if found.accelerator]
    for (one, mine, slow), (other, theirs, fast) in itertools.permutations(timed, 2):
        if mine.accelerator == theirs.accelerator and 0 < slow * SYSTEMS_APART < fast and one.folder is not None:
            found = f"{slow:,.0f} tokens/s per device, {fast:,.0f} in {other.name} with the same devices"
            mend = "check that each folder has its own runs and its own counts of devices"
            yield Deviation(one.folder, None, found, "speeds of devices of one kind near each other", mend)


def _restarted(run: Run, block: TimedBlock) -> bool:
    return any(block.start_ms <= restart.time_ms <= block.stop_ms for restart in run.restarts)


def _at_stop(run: Run, found: str, due: str, mend: str) -> Deviation:
    stop = run.log.first("run_stop")
    return Deviation(run.log.path, None if stop is None else stop.line, found, due, mend)
