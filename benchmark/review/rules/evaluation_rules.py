"""Check the evaluations: their places, their values, and the result that the run states.

Sources: docs/facts/mlperf_review.md 3.5, 3.9, 6.4, 6.5, 7.8.
"""

from collections.abc import Iterator

from benchmark.review.findings import Deviation, Run, Severity, at


def values(run: Run) -> Iterator[Deviation]:
    key, since = run.rules.log_keys.progress, "checkpoint" if run.rules.start_samples else "start"
    for event in run.log.all("eval_accuracy"):
        if run.tokens_at(event) is None:
            found = f"eval_accuracy with {key} {event.metadata.get(key)!r:.40}"
            yield at(run, event, found, f"metadata {key}: {run.rules.unit} trained since the {since}")
        if event.number is None:
            yield at(run, event, f"eval_accuracy {event.value!r:.60}", "a finite number")


def meets_target(run: Run) -> Iterator[Deviation]:
    """Check that a run not marked as aborted meets the target; set_rules.py judges aborted runs."""
    judged, last = run.rules, run.log.last("eval_accuracy")
    if last is None or run.status == "aborted" or (run.reached is not None and run.judged is not None):
        return
    found = [one.log_perplexity for one in run.evaluations if one.log_perplexity is not None]
    if not any(judged.floor < value <= judged.target for value in found):
        best = f"best value {min(found)}" if found else "no value"
        yield at(run, last, best, f"a value above {judged.floor} and at most {judged.target}")


def cadence(run: Run) -> Iterator[Deviation]:
    """Check that an evaluation comes every ceil(interval / batch size) steps, with none left out. An evaluation of the
    checkpoint may come first, and a restart may repeat some. Where accepted logs have other cadences, those are
    questions, and a first evaluation one step early, with all others in line with it, is a note."""
    judged, size = run.rules, run.global_batch_size
    if size is None:
        return
    severity: Severity | None = "warning" if "eval.cadence" in judged.accepted else None
    interval, due, early = judged.tokens_per_evaluation(size), judged.first_evaluation(size), 0.0
    for number, one in enumerate(run.evaluations):
        if one.tokens is None or (one.tokens == 0 and number == 0):
            continue
        found = f"an evaluation at {judged.count(one.tokens)} {judged.unit}"
        step = size * judged.model.seq_length
        if number == 0 and one.tokens == due - step and severity is not None:
            early = step
            yield at(run, one, f"{found}, one step early", judged.count(due), "note")
        elif (one.tokens + early) % interval or one.tokens + early > due or one.tokens <= 0:
            steps = f"{judged.eval_interval(size)} steps of {size:g} sequences after the last"
            if due == judged.first_evaluation(size) > interval:
                steps = "the first that the rules ask for"
            yield at(run, one, found, f"{judged.count(due - early)}: {steps}", severity)
            return  # the ones after it follow from this one
        due = max(due, one.tokens + early + interval)


def stop_status(run: Run) -> Iterator[Deviation]:
    stop = run.log.first("run_stop")
    status = None if stop is None else stop.metadata.get("status")
    if stop is None or (status == "success" and run.reached is not None):
        return
    if "status" not in stop.metadata:
        yield at(run, stop, "run_stop without status", "metadata status 'success' or 'aborted'")
    elif status not in ("success", "aborted"):
        due = "'success' or 'aborted'"
        yield at(run, stop, f"run_stop with status {status!r:.40}", due, "warning")
    elif status == "aborted" and run.reached is not None:
        found = f"status aborted, though line {run.reached.line} met the target"
        yield at(run, stop, found, "success", "warning")


def eval_samples(run: Run) -> Iterator[Deviation]:
    """Check that evaluations take the validation subset, in tokens, documents or sequences: fewer are forbidden. More
    are a question where no official checker compares the number."""
    judged, event = run.rules, run.log.first("eval_samples")
    accepted = (*judged.eval_samples, judged.validation_sequences)
    if event is None or event.number is None or not judged.eval_samples or event.number in accepted:
        return
    due = f"{' or '.join(map(str, judged.eval_samples))}: the whole validation subset"
    enough = event.number >= min(judged.eval_samples) and "eval.samples" in judged.accepted
    yield at(run, event, f"eval_samples {event.value!r:.40}", due, "warning" if enough else None)
