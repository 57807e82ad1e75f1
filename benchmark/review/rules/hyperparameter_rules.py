"""Hyperparameters that the rules derive from the batch size, and that no official tool checks.

The rules: docs/facts/mlperf_review.md 7.5, 7.6, 7.7. Published logs round warm-up and decay in their own way (warm-up
at batch size 2048: 198, 199 and 200), so what is within :data:`ROUNDING` of the formula is a note. The step of the
checkpoint is exact in all of them.
"""

from collections.abc import Iterator

from benchmark.results.judged import GPT3
from benchmark.review.findings import Deviation, Run, at

ROUNDING = 0.02
"""Largest share by which a published log is off a formula: 68 warm-up steps instead of 67."""
END_RATIO = 0.1


def formulas(run: Run) -> Iterator[Deviation]:
    """Everything that is ceil(reference samples / batch size)."""
    judged, size = run.judged or GPT3, run.global_batch_size
    if size is None or run.division == "open":
        return
    benchmark, rate = judged.benchmark, run.learning_rate
    reference = benchmark.start_global_batch_size
    for key, value, samples, rounding in (
        ("opt_learning_rate_warmup_steps", rate.warmup_steps, benchmark.optimizer.lr_warmup_samples, ROUNDING),
        ("opt_learning_rate_decay_steps", rate.decay_steps, benchmark.optimizer.lr_decay_samples, ROUNDING),
        ("init_checkpoint_step", run.init_checkpoint_step, benchmark.start_samples, 0.0),
    ):
        event, due = run.log.first(key), judged.steps(samples, size)
        if event is not None and value is not None and value != due:
            formula = f"{due} = ceil({samples // reference} x {reference} / {size:g})"
            near = abs(value - due) <= rounding * due
            yield at(run, event, f"{key} {value:g}", formula, severity="note" if near else None)


def rates(run: Run) -> Iterator[Deviation]:
    """The peak by the batch size, of which the official checker lets either value pass, and the end, a tenth of it."""
    judged, size, base = run.judged or GPT3, run.global_batch_size, run.learning_rate.base
    if run.division == "open" or base is None:
        return
    event = run.log.first("opt_base_learning_rate")
    allowed = {
        rate for entry in judged.learning_rates if entry.above < (size or 0) < entry.below for rate in entry.allowed
    }
    if event is not None and allowed and base not in allowed:
        due = f"{' or '.join(f'{rate:g}' for rate in sorted(allowed))} at batch size {size:g}"
        yield at(run, event, f"opt_base_learning_rate {event.value!r}", due)
    event = run.log.first("opt_end_learning_rate")
    if event is not None and event.number is not None and not _close(event.number, END_RATIO * base):
        ratio = _close(event.number, END_RATIO)
        found = f"opt_end_learning_rate {event.value!r}{', the ratio' if ratio else ''}"
        yield at(run, event, found, f"{END_RATIO * base:g}", severity="note" if ratio else None)


def batch_size(run: Run) -> Iterator[Deviation]:
    """Beyond the largest point there is none to compare with; the official checker compares smaller ones with the
    smallest point, but the rules want points of their own."""
    judged, size = run.judged or GPT3, run.global_batch_size
    smallest = min(entry.above for entry in judged.learning_rates) + 1
    largest = max(entry.below for entry in judged.learning_rates) - 1
    event = run.log.first("global_batch_size")
    if event is not None and size is not None and run.division != "open" and not smallest <= size <= largest:
        asked = size < smallest
        found = f"global_batch_size {size:g}"
        yield at(run, event, found, f"{smallest} to {largest}", severity="warning" if asked else None)


def _close(left: float, right: float) -> bool:
    return abs(left - right) <= 1e-9 * abs(right)
