"""Check the evaluations: their places, their values, the curve that they are, and the result that the run states.

A curve far from the published ones of its batch size is a question, in the closed division. Distances of gpt3 are from
the median curve (benchmark/config/reference_curves.py), or from an interpolated curve between two batch sizes, in
standard deviations of the 117 distinct published logs; those of Llama 3.1 8B are at a few evaluations, where a batch
size has enough published logs. Sources: docs/facts/mlperf_review.md 3.5, 3.9, 6.4, 6.5, 6.9, 7.8;
docs/facts/llama31_8b.md 9.12.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmark.config.reference_curves import REFERENCE_CURVES
from benchmark.judging.results.judged import GPT3, LLAMA8B
from benchmark.judging.results.run_summary import LoggedEvaluation
from benchmark.judging.review.findings import Deviation, Run, at
from benchmark.run_record.status.reference_curve import curve_at

CURVES = {GPT3.name: REFERENCE_CURVES["gpt3_175b"]}
"""Median curves of published runs."""
FEWEST_VALUES = 6
ANCHORS = {
    (LLAMA8B.name, 16): ((1, 5.219, 0.105), (3, 3.956, 0.019), (5, 3.682, 0.016), (9, 3.438, 0.014)),
    (LLAMA8B.name, 32): ((1, 5.627, 0.081), (3, 4.093, 0.043), (5, 3.760, 0.022), (9, 3.475, 0.019)),
    (LLAMA8B.name, 36): ((5, 3.772, 0.022), (9, 3.476, 0.014)),
    (LLAMA8B.name, 64): ((5, 4.101, 0.149), (9, 3.633, 0.089)),
}
"""By benchmark and batch size: number of an evaluation, mean and standard deviation of its value in the logs of round
5.1 (docs/facts/llama31_8b.md 9.12). Where all of them have one warm-up, which is free, early values are left out."""
FAR_FROM_ANCHOR = 6
MOST_FALL = (0.03, 0.012)
"""Largest fall of gpt3 below the best value so far, in the first five evaluations and later. Published logs fall at
most 0.0152 and 0.0058."""
EARLY_EVALUATIONS = 5
LATE_FALL = (3.7, 0.2)
"""Largest fall of Llama 3.1 8B, once the best value is below the first number. Near the target published logs fall by
0.022 from evaluation to evaluation."""
MOST_APART = 0.02
"""Largest fall of an evaluation that a restart repeats at the same tokens."""


@dataclass(frozen=True)
class CurveFeature:
    """One measure of a curve's distance from the reference: its spread, and the distance that counts as far."""

    words: str
    deviation: float
    """Standard deviation over the published runs."""
    far: float
    """Distance in deviations, either way, from which a curve is far."""


FIRST = CurveFeature("the first value", 1.3e-3, 4)  # published: at most 2.5 deviations
LEVEL = CurveFeature("the middle of all values after the second", 6.2e-4, 5)  # 3.8
LAST = CurveFeature("the last value", 6.9e-4, 5)  # 2.9


def values(run: Run) -> Iterator[Deviation]:
    key, since = run.rules.log_keys.progress, "checkpoint" if run.rules.start_samples else "start"
    for event in run.log.all("eval_accuracy"):
        if run.tokens_at(event) is None:
            observed = f"eval_accuracy with {key} {event.metadata.get(key)!r:.40}"
            yield at(run, event, observed, f"metadata {key}: {run.rules.unit} trained since the {since}")
        diverged = not run.converged and isinstance(event.value, float) and not math.isfinite(event.value)
        if (event.number is None or event.number < 0) and not diverged:
            yield at(run, event, f"eval_accuracy {event.value!r:.60}", "a finite number, at least 0")


def meets_target(run: Run) -> Iterator[Deviation]:
    """Check that a run meets the target; set_rules.py judges runs that were aborted or killed."""
    judged, last = run.rules, run.log.last("eval_accuracy")
    if (
        last is None
        or run.status not in (None, "success")
        or run.breaks_off
        or (run.reached is not None and run.judged is not None)
    ):
        return
    logged = [evaluation.log_perplexity for evaluation in run.evaluations if evaluation.log_perplexity is not None]
    if not any(judged.score.floor < value <= judged.target for value in logged):
        best = f"best value {min(logged)}" if logged else "no value"
        yield at(run, last, best, f"a value above {judged.score.floor} and at most {judged.target}")


def cadence(run: Run) -> Iterator[Deviation]:
    """Check that an evaluation comes every ceil(interval / batch size) steps, with none left out. An evaluation of the
    checkpoint may come first, and a restart may repeat some. Where accepted logs have other cadences, those are
    questions, and a first evaluation one step early, with all others in line with it, is a note."""
    judged, size = run.rules, run.global_batch_size
    if size is None:
        return
    interval, next_tokens, early = judged.tokens_per_evaluation(size), judged.first_evaluation(size), 0.0
    for number, evaluation in enumerate(run.evaluations):
        if evaluation.tokens is None or (evaluation.tokens == 0 and number == 0):
            continue
        observed = f"an evaluation at {judged.count(evaluation.tokens)} {judged.unit}"
        step = size * judged.sequence_length
        if number == 0 and evaluation.tokens == next_tokens - step:
            early = step
            yield at(run, evaluation, f"{observed}, one step early", judged.count(next_tokens), f"{judged.name} early")
        elif (
            (evaluation.tokens + early) % interval or evaluation.tokens + early > next_tokens or evaluation.tokens <= 0
        ):
            steps = f"{judged.eval_interval(size)} steps of {size:g} sequences after the last"
            if next_tokens == judged.first_evaluation(size) > interval:
                steps = "the first that the rules ask for"
            yield at(run, evaluation, observed, f"{judged.count(next_tokens - early)}: {steps}", judged.name)
            return  # the ones after it follow from this one
        next_tokens = max(next_tokens, evaluation.tokens + early + interval)


def stop_status(run: Run) -> Iterator[Deviation]:
    stop = run.log.first("run_stop")
    status = None if stop is None else stop.metadata.get("status")
    if stop is None or (status == "success" and run.reached is not None):
        return
    if "status" not in stop.metadata:
        yield at(run, stop, "run_stop without status", "metadata status 'success' or 'aborted'")
    elif status not in ("success", "aborted") and run.reached is not None:
        expected = "'success' or 'aborted'"
        yield at(run, stop, f"run_stop with status {status!r:.40}", expected, "other word")
    elif status == "aborted" and run.reached is not None:
        observed = f"status aborted, though line {run.reached.line} met the target"
        yield at(run, stop, observed, "success", "target met")


def train_samples(run: Run) -> Iterator[Deviation]:
    """Ask about a number of trained tokens that contradicts the last evaluation. Logs that count samples give the size
    of the dataset there, or the samples."""
    event, tokens = run.log.last("train_samples"), run.trained_tokens
    number = None if event is None else event.number
    if run.rules.unit != "tokens" or not run.converged or number is None or not tokens:
        return
    if number not in (tokens, tokens / run.rules.sequence_length):
        yield at(run, event, f"train_samples {number:,.0f}", f"{tokens:,.0f}, as at the last evaluation")


def eval_samples(run: Run) -> Iterator[Deviation]:
    """Check that evaluations take the validation subset, in tokens, documents or sequences: fewer are forbidden. More
    are a question where no official checker compares the number."""
    judged, event = run.rules, run.log.first("eval_samples")
    accepted = (*judged.evaluation.eval_samples, judged.evaluation.validation_sequences)
    if event is None or event.number is None or not judged.evaluation.eval_samples or event.number in accepted:
        return
    expected = f"{' or '.join(map(str, judged.evaluation.eval_samples))}: the whole validation subset"
    case = judged.name if event.number >= min(judged.evaluation.eval_samples) else ""
    yield at(run, event, f"eval_samples {event.value!r:.40}", expected, case)


def envelope(run: Run) -> Iterator[Deviation]:
    """Check all features of the curve, and yield only the farthest: the others follow from it."""
    size, curves = run.global_batch_size, CURVES.get(run.rules.name)
    if size is None or run.division == "open":
        return
    logged = [
        (evaluation, evaluation.log_perplexity or 0.0)
        for evaluation in run.evaluations
        if evaluation.log_perplexity is not None and evaluation.tokens
    ]
    if curves is None:
        yield from _off_anchors(run, size, logged)
        return
    reference = curve_at(curves, size)
    offsets = [value - reference.log_perplexity(evaluation.tokens or 0) for evaluation, value in logged]
    features = [(FIRST, logged[0][0], offsets[0], f"{logged[0][1]:.4f}")] if logged else []
    if len(logged) >= FEWEST_VALUES:
        (last, value), level = logged[-1], statistics.median(offsets[2:])
        features += [(LEVEL, last, level, f"{level:+.4f} from the curve"), (LAST, last, offsets[-1], f"{value:.4f}")]
    far = [
        (abs(offset) / feature.deviation, feature, evaluation, words)
        for feature, evaluation, offset, words in features
        if abs(offset) > feature.far * feature.deviation
    ]
    for times, feature, evaluation, words in sorted(far, key=lambda row: -row[0] / row[1].far)[:1]:
        observed = f"{feature.words} {words}: {times:.1f} standard deviations off published runs"
        limit = f"within {feature.far:g} of the median curve at batch size {size:g}"
        yield at(run, evaluation, observed, limit)


def _off_anchors(run: Run, size: float, logged: Sequence[tuple[LoggedEvaluation, float]]) -> Iterator[Deviation]:
    """Check for values far below those of published logs at the same batch size, as after a start from trained
    weights; a slower curve is nobody's gain."""
    interval = run.rules.tokens_per_evaluation(size)
    for number, mean, deviation in ANCHORS.get((run.rules.name, int(size)), ()):
        evaluation = next((row for row in logged if row[0].tokens == number * interval), None)
        times = 0.0 if evaluation is None else (mean - evaluation[1]) / deviation
        if evaluation is not None and times > FAR_FROM_ANCHOR:
            observed = (
                f"evaluation {number} has {evaluation[1]:.4f}: {times:.1f} standard deviations below published runs"
            )
            yield at(run, evaluation[0], observed, f"within {FAR_FROM_ANCHOR} of {mean} at batch size {size:g}")
            return


def sudden(run: Run) -> Iterator[Deviation]:
    """Check for a value far below all before it, and for a value that recurs to the last digit; neither happens in a
    published log. After a restart an evaluation may be repeated at the same tokens."""
    best: float | None = None
    lines: dict[float, tuple[int, float | None]] = {}
    first: dict[float | None, tuple[int, float]] = {}
    for number, evaluation in enumerate(run.evaluations, 1):
        value = evaluation.log_perplexity
        if value is None:
            continue
        most = _most_fall(run.rules.name, number, best)
        if best is not None and value < best - most:
            observed = f"eval_accuracy {value}: {best - value:.4f} below the best before"
            yield at(run, evaluation, observed, f"at most {most}")
        line, tokens = lines.setdefault(value, (evaluation.line, evaluation.tokens))
        if tokens != evaluation.tokens:
            observed = f"eval_accuracy {value}: the value of line {line} again"
            yield at(run, evaluation, observed, "a value of its own")
        line, earlier = first.setdefault(evaluation.tokens, (evaluation.line, value))
        if value < earlier - MOST_APART and evaluation.tokens is not None:
            observed = f"eval_accuracy {value}: {earlier - value:.4f} below line {line}, as far in training"
            yield at(run, evaluation, observed, "counts that go on after a restart")
        best = value if best is None else min(best, value)


def _most_fall(benchmark: str, number: int, best: float | None) -> float:
    """Return the largest fall below the best value that an honest run has at its next evaluation."""
    if benchmark in CURVES:
        return MOST_FALL[number > EARLY_EVALUATIONS]
    late = benchmark == LLAMA8B.name and best is not None and best < LATE_FALL[0]
    return LATE_FALL[1] if late else math.inf
