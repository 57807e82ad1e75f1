"""Evaluations: where they come, what they say, and the end of the run.

Sources: docs/facts/mlperf_review.md 3.5, 3.9, 6.5, 7.8.
"""

from collections.abc import Iterator

from benchmark.results.judged import GPT3
from benchmark.results.result_log import LogEvent
from benchmark.results.run_summary import LoggedEvaluation
from benchmark.review.findings import Deviation, Run, at

MOST_FALL = (0.03, 0.012)
"""Below the best value so far, in the first five evaluations and later. In published logs at most 0.0152 and 0.0058."""
EARLY_EVALUATIONS = 5
CADENCE_MEND = "evaluate every ceil(24576 / global_batch_size) steps, and log the tokens since the checkpoint"
SEQUENCES = 5660
"""What the validation set's 24,567 documents fill at 2,048 tokens."""


def has_tokens(run: Run) -> Iterator[Deviation]:
    for event in run.log.all("eval_accuracy"):
        if event.tokens is None:
            found = f"eval_accuracy with epoch_num {event.metadata.get('epoch_num')!r}"
            mend = "log epoch_num = steps since the checkpoint x global_batch_size x sequence length"
            yield at(run, event, found, "metadata epoch_num, a number of tokens", mend)


def is_number(run: Run) -> Iterator[Deviation]:
    for event in run.log.all("eval_accuracy"):
        if event.number is None:
            mend = "log a plain float; a run with NaN has failed"
            yield at(run, event, f"eval_accuracy {event.value!r:.60}", "a finite number", mend)


def meets_target(run: Run) -> Iterator[Deviation]:
    """Of a run that is not said to be aborted; what a result may have of those, set_rules.py says."""
    judged, last = run.judged or GPT3, run.log.last("eval_accuracy")
    if (
        last is None
        or run.status == "aborted"
        or any(
            one.log_perplexity is not None and judged.floor < one.log_perplexity <= judged.target
            for one in run.evaluations
        )
    ):
        return
    values = [one.log_perplexity for one in run.evaluations if one.log_perplexity is not None]
    best = f"best value {min(values)}" if values else "no value"
    due = f"one above {judged.floor} and at most {judged.target}"
    yield at(run, last, best, due, "train until the target is met; a run that never meets it does not count")


def below_floor(run: Run) -> Iterator[Deviation]:
    judged = run.judged or GPT3
    for one in run.evaluations:
        if one.log_perplexity is not None and one.log_perplexity <= judged.floor:
            due = f"above {judged.floor}"
            mend = "check the loss: a mean over padding, or other validation data"
            yield Deviation(run.log.path, one.line, f"eval_accuracy {one.log_perplexity}", due, mend)


def cadence(run: Run) -> Iterator[Deviation]:
    """The k-th evaluation comes after k times ceil(24576 / batch size) steps, and no other."""
    judged, size = run.judged or GPT3, run.global_batch_size
    if size is None:
        return
    interval = judged.tokens_per_evaluation(size)
    for number, one in enumerate(run.evaluations, 1):
        if one.tokens is not None and one.tokens != number * interval:
            found = f"evaluation {number} at {one.tokens:,.0f} tokens"
            due = f"{number * interval:,.0f} = {number} x {judged.eval_interval(size)} steps x {size:g} sequences"
            yield Deviation(run.log.path, one.line, found, due, CADENCE_MEND)
            return  # the ones after it follow from this one


def blocks_match(run: Run) -> Iterator[Deviation]:
    """Blocks are as long as the evaluations' interval."""
    judged, size = run.judged or GPT3, run.global_batch_size
    if size is None:
        return
    interval = judged.tokens_per_evaluation(size)
    for event in run.log.all("block_start"):
        count = event.metadata.get("epoch_count")
        if isinstance(count, int | float) and count not in (interval, run.trained_tokens):
            found = f"block_start with epoch_count {count}"
            yield at(run, event, found, f"{interval:.0f} tokens, from evaluation to evaluation", CADENCE_MEND)
            return


def eval_pairs(run: Run) -> Iterator[Deviation]:
    """Every eval_start has its value and its eval_stop, where they are logged at all."""
    opened: LogEvent | None = None
    values = 0
    for event in run.log.events:
        if event.key == "eval_start":
            if opened is not None:
                yield at(run, opened, "eval_start without eval_stop", "one of each", "log eval_stop after the value")
            opened, values = event, 0
        elif event.key == "eval_accuracy":
            values += 1
        elif event.key == "eval_stop":
            if opened is None:
                yield at(run, event, "eval_stop without eval_start", "one of each", "log eval_start first")
            elif values != 1:
                found = f"{values} eval_accuracy between eval_start and eval_stop"
                yield at(run, event, found, "one", "log one value per evaluation")
            opened = None


def first_value(run: Run) -> Iterator[Deviation]:
    judged = run.judged or GPT3
    if not run.evaluations or run.division == "open":
        return
    one, (low, high) = run.evaluations[0], judged.first_value
    if one.log_perplexity is not None and not low <= one.log_perplexity <= high:
        mend = "check the checkpoint and the validation set: the checkpoint itself evaluates to about 2.7767"
        yield _value(run, one, "the first value", f"{low} to {high}, as in every published log", mend)


def plausible_curve(run: Run) -> Iterator[Deviation]:
    """No sudden improvement, and no value twice: neither happens in a published log."""
    best: float | None = None
    seen: dict[float, int] = {}
    judged = run.judged or GPT3
    for number, one in enumerate(run.evaluations, 1):
        value = one.log_perplexity
        if value is None:
            continue
        most = MOST_FALL[number > EARLY_EVALUATIONS]
        if judged.official and best is not None and value < best - most:
            found, due = f"{best - value:.4f} below the best before", f"at most {most}"
            yield _value(run, one, found, due, "check that every value is of the whole validation set")
        if value in seen:
            mend = "log what was evaluated: two evaluations never agree to the last digit"
            yield _value(run, one, f"the value of line {seen[value]} again", "a new value", mend)
        seen[value] = one.line
        best = value if best is None else min(best, value)


def unsteady_curve(run: Run) -> Iterator[Deviation]:
    for before, one in zip(run.evaluations, run.evaluations[1:], strict=False):
        old, new = before.log_perplexity, one.log_perplexity
        if old is not None and new is not None and new > old + 0.005:
            mend = "look at loss and gradient norm there; a spike that recovers is no fault"
            yield _value(run, one, f"up by {new - old:.4f}", "a falling curve", mend)


def stops_at_target(run: Run) -> Iterator[Deviation]:
    """The run ends with the first evaluation that meets the target."""
    reached = run.reached
    stop = run.log.first("run_stop")
    if reached is None:
        return
    later = [one for one in run.evaluations if one.line > reached.line]
    if later:
        found = f"{len(later)} more evaluation{'s' if len(later) > 1 else ''} after the target was met"
        due = f"run_stop after line {reached.line}"
        mend = "stop at the first evaluation at or below the target: the tools count tokens to the last one"
        yield Deviation(run.log.path, later[0].line, found, due, mend)
    if stop is not None and stop.line < reached.line:
        found = f"run_stop before the evaluation that meets the target (line {reached.line})"
        yield at(run, stop, found, "after it", "stop the clock when the target is known to be met")


def stop_status(run: Run) -> Iterator[Deviation]:
    stop = run.log.first("run_stop")
    if stop is None:
        return
    status = stop.metadata.get("status")
    if status not in ("success", "aborted"):
        due = "metadata status 'success' or 'aborted'"
        yield at(run, stop, f"run_stop with status {status!r:.40}", due, "log how the run ended with run_stop")
    elif status == "success" and run.reached is None:
        found, due = "status success", "aborted: no evaluation met the target"
        yield at(run, stop, found, due, "log success only when the target is met")
    elif status == "aborted" and run.reached is not None:
        found = f"status aborted, though line {run.reached.line} met the target"
        yield at(run, stop, found, "success", "log success when the target is met")


def trained_tokens(run: Run) -> Iterator[Deviation]:
    """train_samples and trained_samples are the tokens at the stop, in every published log; those of an aborted run may
    be within a block that it did not finish."""
    last = run.evaluations[-1].tokens if run.evaluations else None
    size, judged = run.global_batch_size, run.judged or GPT3
    unfinished = judged.tokens_per_evaluation(size) if size and run.was_aborted else 0
    for key in ("train_samples", "trained_samples"):
        event = run.log.first(key)
        if (
            event is not None
            and event.number is not None
            and last is not None
            and not (event.number == last or last < event.number < last + unfinished)
        ):
            found, due = f"{key} {event.number:,.0f}", f"{last:,.0f}, the tokens at the last evaluation"
            yield at(run, event, found, due, "log the tokens trained since the checkpoint")


def eval_samples(run: Run) -> Iterator[Deviation]:
    judged, event = run.judged or GPT3, run.log.first("eval_samples")
    if event is None or event.number is None or not judged.eval_samples or event.number in judged.eval_samples:
        return
    if event.number >= min(judged.eval_samples) or event.number == SEQUENCES:
        yield _eval_samples(run, event)


def too_few_eval_samples(run: Run) -> Iterator[Deviation]:
    judged, event = run.judged or GPT3, run.log.first("eval_samples")
    if event is None or event.number is None or not judged.eval_samples:
        return
    if event.number < min(judged.eval_samples) and event.number != SEQUENCES:
        yield _eval_samples(run, event)


def _eval_samples(run: Run, event: LogEvent) -> Deviation:
    due = "11590004 (tokens) or 24567 (documents): the whole validation subset"
    return at(run, event, f"eval_samples {event.value!r}", due, "evaluate the whole subset, and log one of these")


def _value(run: Run, one: LoggedEvaluation, found: str, due: str, mend: str) -> Deviation:
    return Deviation(run.log.path, one.line, f"eval_accuracy {one.log_perplexity}: {found}", due, mend)
