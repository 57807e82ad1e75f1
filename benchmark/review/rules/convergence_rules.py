"""What the recomputed convergence test says of three runs (docs/facts/mlperf_review.md 5)."""

from collections.abc import Iterator
from pathlib import Path

from benchmark.results.subjects import ResultSet
from benchmark.review.findings import Deviation


def test(one: ResultSet) -> Iterator[Deviation]:
    result = one.convergence
    if result.standing not in ("fails", "no reference point") or one.is_open:
        return
    if result.point is None or result.median is None:
        mend = "give three converged runs of one batch size that has reference points"
        yield _at_middle_run(one, result.why, "three runs to compare with reference points", mend)
        return
    found = f"median {result.median:,.0f} tokens to the target, {result.why}"
    due = f"at least {result.point.least:,.0f}"
    mend = "it converges faster than the reference can: look for a difference in model, data, schedule or evaluation"
    yield _at_middle_run(one, found, due, mend)


def only_by_void_data(one: ResultSet) -> Iterator[Deviation]:
    if one.convergence.repaired in ("fails", "no reference point") and not one.is_open:
        found = f"passes only by void reference data: {_void(one)}"
        mend = "expect reviewers to hold it against the points without those runs"
        yield _at_middle_run(one, found, "a pass without them too", mend)


def void_data(one: ResultSet) -> Iterator[Deviation]:
    if one.convergence.void and one.convergence.repaired not in ("fails", "no reference point"):
        mend = "nothing to mend: it passes without those runs too"
        yield _at_middle_run(one, f"void reference data: {_void(one)}", "reference runs that agree", mend)


def scaled(one: ResultSet) -> Iterator[Deviation]:
    result = one.convergence
    if result.factor > 1 and result.median is not None and result.point is not None:
        found = f"median {result.median:,.0f} tokens, fewer than the reference mean: times {result.factor:.4f}"
        mend = "nothing to mend: the score is normalised"
        yield _at_middle_run(one, found, f"{result.point.mean:,.0f} for a score as measured", mend)


def _void(one: ResultSet) -> str:
    points = (
        f"{outlier:,.0f} tokens at {point.batch_size:g}" for point in one.convergence.void for outlier in point.outliers
    )
    return "; ".join(points)


def _at_middle_run(one: ResultSet, found: str, due: str, mend: str) -> Deviation:
    """At the last evaluation of the middle run, where its tokens stand."""
    runs = sorted(one.runs, key=lambda run: (not run.converged, run.trained_tokens or 0))
    middle = runs[len(runs) // 2] if runs else None
    path: Path = one.folder or (one.files[0].parent if one.files else Path(one.name))
    if middle is None:
        return Deviation(path, None, found, due, mend)
    event = middle.log.last("eval_accuracy")
    return Deviation(middle.log.path, None if event is None else event.line, found, due, mend)
