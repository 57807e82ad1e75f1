"""Find runs that were handed in twice: with the same evaluations, exact, shifted or scaled, or with the same times, as
a run of the same system, of another system or submitter, or of an earlier round.

Two honest runs never agree like this: among the 117 distinct published runs of GPT-3 (6,786 pairs) no two have curves
that, one shifted and stretched onto the other, lie within 1.0e-4 of each other (standard deviation), and none share
more than one value. None of them, nor of the 39 published systems of Llama 3.1 8B, have times whose pattern agrees to
less than 0.07 (docs/facts/mlperf_review.md 6.8, 7.9). Where all runs of a system slow down alike, or pause after the
same blocks, the pattern agrees without a copy, but not to the last digit. Not detected: forgeries made of several runs,
and forgeries with noise of their own.
"""

import csv
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.judging.results.subjects import ResultSet, SubmissionPackage
from benchmark.judging.review.findings import Deviation, Run, at
from benchmark.judging.review.rules.key_rules import single_runs
from benchmark.judging.review.rules.naming_rules import like_name

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

MOST_EVALUATIONS = 400
"""Largest number of evaluations compared; the longest published run has 29."""
SHARED_VALUES = 5
"""Number of values, equal to :data:`DECIMALS` decimals at any place, that mark a copy; published runs share at most
one."""
FEWEST_VALUES = 10
SAME_CURVE = 1e-5
"""Standard deviation left after one curve is fitted to the other, below which they are the same: a tenth of the least
between honest runs."""
STRETCHED = (0.5, 2.0)
ROUNDED = range(3, 7)
"""Decimals to which a copy may be rounded."""
FEWEST_INTERVALS = 10
SAME_TIMES = 0.02
"""Median distance of two runs' times between evaluations, relative to their spread, below which they are the same;
honest runs have at least 0.07."""
LEAST_SPREAD = 20
"""Spread, in units in which a log's clock counts, below which times prove nothing: on a quiet machine they agree to the
millisecond. Times that are the same differ by one unit at most, after rounding."""
DECIMALS = 7
"""Decimals of log perplexities that are compared: two honest runs differ by far more."""
COARSE_DECIMALS = 4
"""Decimals of values that a log has rounded: honest runs share some of these, and a copy all of them."""


@dataclass(frozen=True)
class Trace:
    """Values of a run that cannot all agree with another run's."""

    values: tuple[float, ...]
    """Log perplexities; NaN if the log has no number."""
    seconds: tuple[float, ...]
    """Seconds from evaluation to evaluation, without the first, which warms up and is alike in runs of one system."""

    @cached_property
    def rounded(self) -> frozenset[float]:
        return frozenset(round(value, DECIMALS) for value in self.values if np.isfinite(value))


@dataclass(frozen=True)
class PublishedRun:
    """One published run; of GPT-3 there are 126, of rounds 3.0 to 4.1 (docs/facts/mlperf_review.md 6)."""

    name: str
    """Name such as "v4.1 NVIDIA/eos_n64_ngc24.09_nemo/result_0.txt"."""
    submitter: str
    """Submitter as in the system description."""
    org: str
    platform: str
    """Values of ``submission_org`` and ``submission_platform``, placeholders included."""
    batch_size: float
    started_ms: int
    trace: Trace


@dataclass(frozen=True)
class RoundRuns:
    """The runs of a submission, and those that are copies of runs of other submissions of the round."""

    copied: Mapping[Path, tuple[str, Path]]
    """Reason, and the log of the other run, by log."""
    runs: Sequence[Run]


def in_system(results: ResultSet) -> Iterator[Deviation]:
    yield from _copies(([run] for run in single_runs(results.runs)), parts=1)


def in_package(package: SubmissionPackage) -> Iterator[Deviation]:
    """Find one run submitted for two systems."""
    yield from _copies((single_runs(results.runs) for results in package.sets), parts=3)


def in_round(submission: RoundRuns) -> Iterator[Deviation]:
    """Find runs of one submission that are copies of runs in other submissions of the round; copies among published
    runs are left to the committee."""
    for run in submission.runs:
        words, path = submission.copied.get(run.log.path, ("", run.log.path))
        if words and not itself(run):
            yield _deviation(run, words, "/".join(path.parts[-5:]))


def round_copies(submissions: Sequence[Sequence[Run]]) -> dict[Path, tuple[str, Path]]:
    """Compare each pair of runs of two submissions once; return reason and first other log by the log of each copy."""
    copied: dict[Path, tuple[str, Path]] = {}
    traced = [[(run.log.path, of_run(run)) for run in single_runs(runs)] for runs in submissions]
    for first, second in itertools.combinations(traced, 2):
        for (path, trace), (original_path, original) in itertools.product(first, second):
            if likeness(trace, original) or likeness(original, trace):
                copied.setdefault(path, (likeness(trace, original) or likeness(original, trace), original_path))
                copied.setdefault(original_path, (likeness(original, trace) or likeness(trace, original), path))
    return copied


def _copies(groups: Iterable[Sequence[Run]], parts: int) -> Iterator[Deviation]:
    """Yield a deviation for each run that equals a run of an earlier group; the last ``parts`` of its path name it."""
    earlier: list[tuple[Run, Trace]] = []
    for group in groups:
        traced = [(run, of_run(run)) for run in group]
        for run, trace in traced:
            alike = ((original, likeness(trace, values)) for original, values in earlier)
            original, words = next((pair for pair in alike if pair[1]), (run, ""))
            if words:
                yield _deviation(run, words, "/".join(original.log.path.parts[-parts:]))
        earlier += traced


def published(results: ResultSet) -> Iterator[Deviation]:
    """Find a published run with other times, values or names, or beside the description of another submitter. Logs of
    an earlier round may be submitted again with the same description, which is noted once per system."""
    submitter = None if results.system is None else results.system.string("submitter")
    again = []
    for run in results.runs:
        originals = itself(run)
        if originals:
            again.append((run, originals[0].name))
        if not originals or not (
            submitter is None or any(like_name(submitter, original.submitter) for original in originals)
        ):
            for original, words in _like_published(run)[:1]:
                yield _deviation(run, words, f"the published {original.name} of {original.submitter}")
    for run, name in again[:1]:
        observed = f"all records in {len(again)} of {len(results.runs)} runs"
        yield _deviation(run, observed, f"the published {name}", "itself")


def itself(run: Run) -> list[PublishedRun]:
    """Return the published runs whose times equal the log's to the millisecond: several if one log was published
    twice."""
    trace = of_run(run)
    values = tuple(float(f"{value:.10g}") for value in trace.values)  # as the table has them
    key = (run.org, run.platform, run.global_batch_size, run.run_start_ms, Trace(values, trace.seconds))
    return [
        original
        for original, _ in _like_published(run)
        if (original.org, original.platform, original.batch_size, original.started_ms, original.trace) == key
    ]


def _like_published(run: Run) -> list[tuple[PublishedRun, str]]:
    table = run.rules.published
    return [] if table is None else _published_likeness(of_run(run), table)


@lru_cache(maxsize=64)
def _published_likeness(trace: Trace, table: Path) -> list[tuple[PublishedRun, str]]:
    return [(original, words) for original in published_runs(table) if (words := likeness(trace, original.trace))]


@lru_cache(maxsize=4)
def published_runs(table: Path) -> tuple[PublishedRun, ...]:
    """Return all runs of a table of published runs in its order: round, package, system."""
    with table.open(newline="", encoding="utf-8") as file:
        return tuple(_published_run(row) for row in csv.DictReader(file))


def _published_run(row: dict[str, str]) -> PublishedRun:
    times = [int(stamp) for stamp in row["evaluation_ms"].split()]
    seconds = tuple((end - start) / 1000 for start, end in itertools.pairwise(times))
    return PublishedRun(
        name=f"v{row['round']} {row['package']}/{row['system_folder']}/{row['file']}",
        submitter=row["submitter"],
        org=row["submission_org"],
        platform=row["submission_platform"],
        batch_size=float(row["global_batch_size"]),
        started_ms=round(datetime.fromisoformat(row["run_started"]).timestamp() * 1000),
        trace=Trace(tuple(float(value) for value in row["evaluation_values"].split()), seconds),
    )


def _deviation(run: Run, words: str, name: str, case: str = "") -> Deviation:
    return at(run, run.log.first("eval_accuracy"), f"{words}, as {name}", "a run of its own", case)


def of_run(run: Run) -> Trace:
    evaluations = run.evaluations[:MOST_EVALUATIONS]
    return Trace(
        tuple(
            np.nan if evaluation.log_perplexity is None else float(evaluation.log_perplexity)
            for evaluation in evaluations
        ),
        tuple((end.time_ms - start.time_ms) / 1000 for start, end in itertools.pairwise(evaluations)),
    )


def likeness(trace: Trace, original: Trace) -> str:
    """Return the reason why two runs cannot both be honest; empty without one."""
    shared = trace.rounded & original.rounded
    fine = [value for value in shared if value != round(value, COARSE_DECIMALS)]
    proof = shared if trace.rounded == original.rounded else fine
    if len(proof) >= min(SHARED_VALUES, max(2, len(trace.values))):
        return f"{len(shared)} of its {len(trace.values)} values"
    with np.errstate(all="ignore"):  # values of strangers overflow and are no numbers
        if _same_curve(trace.values, original.values):
            return "its curve, shifted or scaled"
        if _fewer_decimals(trace.values, original.values) or _fewer_decimals(original.values, trace.values):
            return "its values, to fewer decimals"
        if _same_times(trace.seconds, original.seconds):
            return "its times between evaluations, as they are or scaled"
    return ""


def _same_curve(values: Sequence[float], originals: Sequence[float]) -> bool:
    """Return whether a straight-line fit lays one curve onto the other."""
    curve, original = _pair(values, originals)
    if len(curve) < FEWEST_VALUES:
        return False
    curve, original = curve - curve.mean(), original - original.mean()
    slope = float(curve @ original / (curve @ curve))  # no number of a constant curve, which is like none
    return STRETCHED[0] < slope < STRETCHED[1] and float((original - slope * curve).std()) < SAME_CURVE


def _fewer_decimals(values: Sequence[float], originals: Sequence[float]) -> bool:
    """Return whether all values are the originals to so many decimals as no two honest runs share in all values."""
    pairs = list(zip(values, originals, strict=False))
    if len(pairs) < FEWEST_VALUES or abs(pairs[0][0] - pairs[0][1]) > 0.1 ** ROUNDED[0]:
        return False
    return any(all(round(original, digits) == value for value, original in pairs) for digits in ROUNDED)


def _same_times(times: Sequence[float], originals: Sequence[float]) -> bool:
    """Return whether two runs have the same pattern of times; one stall does not hide the rest."""
    pairs = list(zip(times, originals, strict=False))
    if len(pairs) < FEWEST_INTERVALS:
        return False
    intervals, original_intervals = zip(*pairs, strict=True)
    usual, original_usual = statistics.median(intervals), statistics.median(original_intervals)
    if min(usual, original_usual) <= 0:
        return False
    least = min(_spread(intervals), _spread(original_intervals))
    apart = _spread([seconds - usual / original_usual * original for seconds, original in pairs])
    if apart >= SAME_TIMES * least:  # as between nearly all runs: the unit takes longer to find
        return False
    unit = math.gcd(*(round(1000 * seconds) for seconds in (*intervals, *original_intervals))) / 1000
    return least > LEAST_SPREAD * unit and apart <= unit


def _pair(values: Sequence[float], originals: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Return the numbers of the evaluations for which both runs have one."""
    count = min(len(values), len(originals))
    curve, original = np.array(values[:count], dtype=np.float64), np.array(originals[:count], dtype=np.float64)
    finite = np.isfinite(curve) & np.isfinite(original)
    return curve[finite], original[finite]


def _spread(numbers: Sequence[float]) -> float:
    """Return the median distance from the median. For some twenty numbers NumPy takes ten times as long."""
    middle = statistics.median(numbers)
    return statistics.median(abs(number - middle) for number in numbers)
