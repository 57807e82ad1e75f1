"""Where reference runs converge, as a band on the accuracy figure."""

from collections.abc import Sequence

from benchmark.report.figures import Band
from benchmark.results.convergence import ReferencePoint, points_for, prune
from benchmark.results.run_summary import RunSummary


def reference_band(runs: Sequence[RunSummary], ruleset: str) -> Band | None:
    """From the fastest to the slowest reference run at the runs' batch size, or interpolated between two points.

    None where the runs differ in batch size or benchmark, or nothing is known of it. Reference runs that are no
    measurements (docs/facts/mlperf_review.md 5.10) are left out.
    """
    sizes = {(run.global_batch_size, run.judged) for run in runs}
    if len(sizes) != 1:
        return None
    size, judged = sizes.pop()
    if size is None or judged is None:
        return None
    points = points_for(judged, ruleset)
    for point in points:
        if point.batch_size == size:
            low, high = _span(point)
            return Band(low, high, f"reference runs at batch size {size:g}")
    kept = prune(points)
    below = [point for point in kept if point.batch_size < size]
    above = [point for point in kept if point.batch_size > size]
    if not below or not above:
        return None
    share = (size - below[-1].batch_size) / (above[0].batch_size - below[-1].batch_size)
    ends = [a + share * (b - a) for a, b in zip(_span(below[-1]), _span(above[0]), strict=True)]
    label = f"reference runs, between {below[-1].batch_size:g} and {above[0].batch_size:g}"
    return Band(ends[0], ends[1], label)


def _span(point: ReferencePoint) -> tuple[float, float]:
    tokens = [one for one in point.tokens if one not in point.outliers]
    return min(tokens), max(tokens)
