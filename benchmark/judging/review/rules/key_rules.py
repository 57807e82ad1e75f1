"""Check the records that a log must hold exactly once, and the values that the rules fix or derive from the batch size.

Sources: docs/facts/mlperf_review.md 2, 3, 7.2, 7.5, 7.6, 7.7; docs/facts/llama31_8b.md 2, 4, 7. Published logs of
GPT-3 round warm-up and decay in their own way (warm-up at batch size 2048: 198, 199 and 200), so a value within
:data:`ROUNDING` of the formula is a note. The step of the checkpoint is exact in all of them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from benchmark.judging.results.judged import DISCLOSURE, OFFICIAL, Judged
from benchmark.judging.results.run_summary import BACKWARDS_MS
from benchmark.judging.review.findings import Deviation, Run, at
from benchmark.run_record.events.mllog import LogEvent
from foundation.plain_text import shortened

EVENTS_ONCE = ("init_stop", "run_start", "run_stop", "train_samples")
EARLY = ("cache_clear", "init_start", "init_stop")
AT_LEAST_ONE = (
    ("cache_clear",), ("init_start",), ("eval_accuracy",), ("block_start", "epoch_start"), ("block_stop", "epoch_stop"),
)  # fmt: skip
UNFINISHED = ("eval_accuracy", "block_stop")
"""Keys that the log of an aborted run need not have."""
AT_THE_END = (*UNFINISHED, "run_start", "block_start", "run_stop", "train_samples")
"""Keys that the log of a killed run need not have; set_rules.py counts it as failed."""
MOST_SHOWN = 60
"""Largest number of characters shown of a value."""
MANY = 5
"""Number of repeated keys from which a log holds a second run or copy, not a slip."""
ROUNDING = 0.02
"""Largest relative difference of a published log from a formula: 68 warm-up steps instead of 67."""
END_RATIO = 0.1
FLOAT32 = 1e-6
"""Largest relative difference of an end rate from the rules': it may come from a float32 tensor."""
WARMUP, DECAY = "opt_learning_rate_warmup_steps", "opt_learning_rate_decay_steps"
ABOVE, WHOLE, LEAST = "a number above 0", "a whole number above 0", "a number of at least 0"
FORMATS = (
    "'bfloat16', 'fp8', 'nvfp4', 'mxfp4', 'mxfp6', 'fp16', 'tf32', 'fp32', 'fp64', 'int8', 'uint8', 'int4', 'uint4', "
    "'Graphcore FLOAT 16.16'"
)
KINDS = {
    **dict.fromkeys(("global_batch_size", "gradient_accumulation_steps"), WHOLE),
    "init_checkpoint_step": "a whole number of at least 0",
    **dict.fromkeys(("eval_samples", "train_samples", "opt_base_learning_rate"), ABOVE),
    **dict.fromkeys((WARMUP, DECAY), LEAST),
    "opt_end_learning_rate": LEAST,
    "submission_org": "a name",
    "submission_platform": "a name",
    "submission_division": "'closed' or 'open'",
    **{key: FORMATS if "precision" in key else "a name" if "filename" in key else WHOLE for key in DISCLOSURE},
}
"""Kind of value that each key must have; the official checkers refuse others, or crash on them."""


def readable(run: Run) -> Iterator[Deviation]:
    """Check for records that the official tools cannot read, or lose; ask if a person reads another value than the
    tools do."""
    for problem in run.log.problems:
        yield Deviation(
            run.log.path, problem.line, problem.observed, problem.expected, "" if problem.fatal else "ambiguous"
        )


def two_runs(run: Run) -> Iterator[Deviation]:
    """Check for a second run appended to a file, from which all other findings there follow."""
    second = _second_records(run)
    if len(second) >= MANY and len(run.log.all("run_start")) > 1 and not _is_copy(run, second):
        yield at(run, second[0], f"another run begins here, with {second[0].key} again", "the records of one run")


def benchmark(run: Run) -> Iterator[Deviation]:
    """Check for a name of no benchmark, or of another one than the folder's: the other findings follow from what the
    log is taken for."""
    event, folder = run.log.first("submission_benchmark"), run.log.path.parent.name
    named = (folder,) if folder in OFFICIAL else tuple(OFFICIAL)
    if event is not None and (run.judged is None or (folder in OFFICIAL and run.benchmark != folder)):
        yield at(run, event, _in_words(event), " or ".join(repr(name) for name in named))


def single_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the runs whose file holds no other: a second log in a file says nothing of the runs beside it."""
    return [run for run in runs if not any(True for _ in two_runs(run))]


def _second_records(run: Run) -> list[LogEvent]:
    """Return the second record of each key that a run must log once, by line."""
    keys = (*run.rules.configuration, *EVENTS_ONCE)
    return sorted((run.log.all(key)[1] for key in keys if len(run.log.all(key)) > 1), key=lambda event: event.line)


def _is_copy(run: Run, second: list[LogEvent]) -> bool:
    """Return whether the second records are the first, within a second: the output was captured twice, or several
    processes wrote it."""
    first = (run.log.all(event.key)[0] for event in second)
    return all(
        record.value == copy.value and abs(record.time_ms - copy.time_ms) <= BACKWARDS_MS
        for record, copy in zip(first, second, strict=True)
    )


def present(run: Run) -> Iterator[Deviation]:
    log = run.log
    if not log.events:
        return  # said by readable
    last, init_stop = log.events[-1].line, log.first("init_stop")
    if run.breaks_off and init_stop is None:
        return
    optional = AT_THE_END if run.breaks_off else UNFINISHED if run.was_aborted else ()
    for names in (*((key,) for key in (*run.rules.configuration, *EVENTS_ONCE)), *AT_LEAST_ONE):
        if not any(map(log.all, names)) and names[0] not in optional:
            early = init_stop is not None and names[0] in (*run.rules.configuration, *EARLY)
            line, words = init_stop.line if early and init_stop else last, " or ".join(names)
            yield Deviation(log.path, line, f"no {words}", f"one {words}")


def not_repeated(run: Run) -> Iterator[Deviation]:
    """Check for repeated records. The official checker fails two different values, but passes the same value twice."""
    second = _second_records(run)
    if len(second) >= MANY and _is_copy(run, second):
        observed = f"{second[0].key} again, and {len(second) - 1} other records, each at the same time"
        yield at(run, second[0], observed, "every record once", "captured twice")
        return
    for event in second:
        values = list(dict.fromkeys(repr(record.value) for record in run.log.all(event.key)))
        observed = f"{len(run.log.all(event.key))} times {event.key}, values {', '.join(values[:4])}"
        yield at(run, event, observed, "once", "" if len(values) > 1 else "same value")


def kinds(run: Run) -> Iterator[Deviation]:
    for key, expected in KINDS.items():
        for event in run.log.all(key) if key not in DISCLOSURE or key in run.rules.configuration else ():
            value = event.number
            if key == "init_checkpoint_step" and run.rules.start_samples:
                expected = WHOLE
            if "number" in expected:
                fits = value is not None and value >= 0 and (value > 0 or "above" not in expected)
                fits = fits and ("whole" not in expected or value == int(value or 0))
            elif expected == "a name":
                fits = isinstance(event.value, str) and event.value.strip() != ""
            else:
                fits = f"'{event.value}'" in expected
            if not fits:
                yield at(run, event, _in_words(event), expected, "rate" if key.endswith("learning_rate") else "")


def fixed(run: Run) -> Iterator[Deviation]:
    """Check the values that the rules fix, if a log has them; no official tool checks those of the model. Ask about
    keys that no rule asks for."""
    if run.division == "open":
        return
    for key, least, largest in run.rules.informative:
        for event in run.log.all(key):
            if event.number is None or not least <= event.number <= largest:
                limits = f"{least:g}" if least == largest else f"{least:,.0f} to {largest:,.0f}"
                yield at(run, event, _in_words(event), limits, "informative")
    for key, expected in run.rules.fixed:
        for event in run.log.all(key):
            if expected != (event.value if isinstance(expected, str) else event.number):
                yield at(run, event, _in_words(event), repr(expected))


def seeds(run: Run) -> Iterator[Deviation]:
    log = run.log
    if run.division == "open":
        return
    if log.events and not log.all("seed"):
        yield at(run, log.first("init_stop") or log.events[0], "no seed", "at least one whole number")
    for event in log.all("seed"):
        missing = [name for name in ("file", "lineno") if name not in event.metadata]
        if type(event.value) is not int:
            as_text = isinstance(event.value, str) and event.value.isdecimal()
            yield at(run, event, _in_words(event), "a whole number", "as text" if as_text else "")
        if missing:
            yield at(run, event, f"seed without {' and '.join(missing)}", "metadata with file and lineno")


def formulas(run: Run) -> Iterator[Deviation]:
    """Check every number of steps that the rules derive from the batch size."""
    size, judged = run.global_batch_size, run.rules
    if size is None or run.division == "open":
        return
    for key, expected, formula, rounding in _due_steps(judged, size, run.log.number(WARMUP)):
        event = run.log.first(key)
        if event is not None and event.number is not None and event.number != expected:
            near = abs(event.number - expected) <= rounding * expected
            yield at(
                run, event, f"{key} {event.number:.10g}", f"{expected:.10g} = {formula}", "rounded" if near else ""
            )


def _due_steps(judged: Judged, size: float, warmup: float | None) -> Iterator[tuple[str, float, str, float]]:
    """Yield key, number of steps, its formula, and the relative rounding that it allows. ``warmup`` is the logged
    one, which counts where submitters choose it."""

    def steps(samples: int) -> tuple[float, str]:
        reference = judged.schedule.reference_batch_size
        return judged.steps(samples, size), f"ceil({samples // reference} x {reference} / {size:g})"

    schedule = judged.schedule
    if schedule.warmup_samples is not None:
        warmup, formula = steps(schedule.warmup_samples)
        yield WARMUP, warmup, formula, ROUNDING
    end = schedule.max_steps
    if schedule.decay_samples is not None or end is not None:
        last, formula = (end, f"{end}") if end is not None else steps(schedule.decay_samples or 0)
        if not schedule.decay_excludes_warmup:
            yield DECAY, last, formula, ROUNDING
        elif warmup is not None:
            yield DECAY, last - warmup, f"{formula} - {warmup:.10g}", 0.0
    yield "init_checkpoint_step", *steps(judged.start_samples), 0.0


def rates(run: Run) -> Iterator[Deviation]:
    """Check the peak learning rate against the batch size, and the end rate. Of gpt3 the official checker passes
    either of two peaks."""
    base, end, size = (
        run.log.first("opt_base_learning_rate"),
        run.log.first("opt_end_learning_rate"),
        run.global_batch_size,
    )
    if run.division == "open" or base is None or base.number is None:
        return
    schedule = run.rules.schedule
    rates = (rate_rule for rate_rule in schedule.learning_rates if rate_rule.above < (size or 0) < rate_rule.below)
    allowed = {rate for rate_rule in rates for rate in rate_rule.allowed}
    if schedule.rate_per_sample is not None and size is not None:
        allowed = {schedule.rate_per_sample * size}
    if allowed and not any(abs(base.number - rate) <= schedule.rate_rounding for rate in allowed):
        expected = f"{' or '.join(f'{rate:g}' for rate in sorted(allowed))} at batch size {size:g}"
        yield at(run, base, _in_words(base), expected)
    last = END_RATIO * base.number if schedule.end_rate is None else schedule.end_rate
    if end is not None and end.number is not None and not _close(end.number, last):
        ratio = schedule.end_rate is None and _close(end.number, END_RATIO)
        observed = f"{_in_words(end)}{', the ratio' if ratio else ''}"
        yield at(run, end, observed, f"{last:g}", "ratio" if ratio else "")


def batch_size(run: Run) -> Iterator[Deviation]:
    """Check that reference points exist for the batch size. None is larger than the largest point. The official checker
    compares smaller sizes with the smallest point, but the rules want points of their own."""
    size, event = run.global_batch_size, run.log.first("global_batch_size")
    smallest, largest = run.rules.score.batch_sizes
    if event is not None and size is not None and run.division != "open" and not smallest <= size <= largest:
        observed = f"global_batch_size {size:g}"
        yield at(run, event, observed, f"{smallest} to {largest}", "below" if size < smallest else "")


def _close(left: float, right: float) -> bool:
    return abs(left - right) <= FLOAT32 * abs(right)


def _in_words(event: LogEvent) -> str:
    value: Any = event.value
    return f"{event.key} {shortened(repr(value), MOST_SHOWN)}"
